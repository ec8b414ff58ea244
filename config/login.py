"""The one-time login link of the local profile.

A ticket is signed, ages out after an hour, and carries the user's last login: redeeming it changes that, so a second
use fails.
"""

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotFound
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache

SALT = "config.login"
MAX_AGE_SECONDS = 3600


def issue(user: User) -> str:
    """Make a ticket that lets its holder log in as the user, once."""
    return signing.dumps([user.pk, _stamp(user)], salt=SALT)


@never_cache
def redeem(request: HttpRequest, ticket: str) -> HttpResponse:
    """Log the holder of a ticket in and send them to the admin."""
    if not settings.LOCAL:
        raise Http404
    try:
        user_id, stamp = signing.loads(ticket, salt=SALT, max_age=MAX_AGE_SECONDS)
    except signing.BadSignature:
        return _refusal("This login link is not valid, or is more than an hour old.")
    with transaction.atomic():
        user = get_user_model().objects.select_for_update().filter(pk=user_id, is_active=True).first()
        if user is None or _stamp(user) != stamp:
            return _refusal("This login link was used already.")
        login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("admin:index")


def _refusal(reason: str) -> HttpResponse:
    return HttpResponseNotFound(f"{reason} Start `make run` again for a new one.\n", content_type="text/plain")


def _stamp(user: User) -> str:
    return user.last_login.isoformat() if user.last_login else ""
