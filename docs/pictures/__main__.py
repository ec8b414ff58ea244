"""Takes the README's picture of a run's page anew: `make picture`.

The page is a real one: a run made by the engine in a scratch database, shown by the web server of `make run`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import django

FILE = Path(__file__).parent / "run.png"
WIDTH = 1180
DATABASE = "dexflows_picture"


def main() -> None:
    """Make the database, the run and the picture."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ["DEXFLOWS_PROFILE"] = "local"
    django.setup()
    from django.db import connection

    connection.settings_dict["TEST"]["NAME"] = DATABASE
    previous = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        _take()
    finally:
        connection.creation.destroy_test_db(previous, verbosity=0)
    print(FILE)


def _take() -> None:
    from django.contrib.auth.models import User
    from django.urls import reverse

    from config import login
    from docs.pictures.order import order_under_way
    from tests.browser.chromium import find_chromium, open_page
    from tests.web import WebServer

    chromium = find_chromium() or sys.exit("There is no Chromium on PATH.")
    server = WebServer()
    with order_under_way() as run_id:
        ticket = login.issue(User.objects.create_superuser("admin"))
        server.start()
        try:
            with open_page(chromium, server.url, width=WIDTH, scale=1.5) as page:
                page.add_init_script("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")
                page.goto(reverse("local-login", args=[ticket]))
                page.goto(reverse("admin:dexflows_run_change", args=[run_id]))
                page.evaluate("Promise.all(document.getAnimations().map(each => each.finished))")
                below = page.locator(".module", has_text="History, newest first").bounding_box()
                assert below is not None, "the page has no history"
                clip = {"x": 0, "y": 0, "width": WIDTH, "height": below["y"]}
                page.screenshot(path=FILE, full_page=True, clip=clip, animations="disabled")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
