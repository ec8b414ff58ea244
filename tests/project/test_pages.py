"""Pages of the project itself: health, headers, the one-time login, the API's documentation."""

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse

from config import login


@pytest.fixture
def https() -> Client:
    return Client(headers={"host": "localhost"}, **{"wsgi.url_scheme": "https"})


@pytest.mark.django_db
def test_health_answers_without_login_and_without_https() -> None:
    assert Client().get("/healthz").json() == {"status": "ok"}
    assert Client().get("/readyz").json() == {"status": "ok", "database": "ok"}


@pytest.mark.django_db
def test_every_page_forbids_inline_scripts(https: Client) -> None:
    for path in (reverse("admin:login"), reverse("docs"), "/healthz", "/no-such-page"):
        policy = https.get(path, secure=True).headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "unsafe-inline" not in policy


@pytest.mark.django_db
def test_the_documentation_page_has_no_inline_script(https: Client) -> None:
    user = User.objects.create_superuser("reader")
    https.force_login(user)
    page = https.get(reverse("docs"), secure=True).content.decode()
    assert "<script>" not in page
    assert "https://" not in page


@pytest.mark.django_db
def test_production_redirects_to_https_and_asks_for_a_login() -> None:
    assert Client().get("/admin/").status_code == 301
    assert Client().get(reverse("schema"), secure=True).status_code in {401, 403}


@pytest.mark.django_db
class TestLoginLink:
    def test_it_logs_in_once(self) -> None:
        address = reverse("local-login", args=[login.issue(User.objects.create_superuser("admin"))])
        with override_settings(LOCAL=True):
            first = Client()
            assert first.get(address, secure=True).status_code == 302
            assert first.get("/admin/", secure=True).status_code == 200
            second = Client().get(address, secure=True)
            assert second.status_code == 404
            assert b"used already" in second.content

    def test_it_does_nothing_outside_the_local_profile(self) -> None:
        address = reverse("local-login", args=[login.issue(User.objects.create_superuser("admin"))])
        assert Client().get(address, secure=True).status_code == 404

    def test_a_forged_ticket_is_refused(self) -> None:
        User.objects.create_superuser("admin")
        with override_settings(LOCAL=True):
            assert Client().get(reverse("local-login", args=["WzEsIiJd:x:y"]), secure=True).status_code == 404
