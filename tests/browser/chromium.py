"""The machine's own Chromium, driven by Playwright. Nothing is downloaded, and the browser calls no one else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--no-sandbox",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE_MS = 30_000


def find_chromium() -> str | None:
    """The path of an installed Chromium or Chrome."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def open_browser(executable: str) -> Iterator[Browser]:
    """A browser without a window.

    Within the block this thread has a running event loop, so Django refuses to query from it: make rows before.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(QUIET), timeout=PATIENCE_MS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(executable: str, url: str, *, width: int = 1280, height: int = 900, scale: float = 1) -> Iterator[Page]:
    """An empty tab whose addresses begin at ``url``."""
    expect.set_options(timeout=PATIENCE_MS)
    with open_browser(executable) as browser:
        page = browser.new_page(
            base_url=url, viewport={"width": width, "height": height}, device_scale_factor=scale, color_scheme="light"
        )
        page.set_default_timeout(PATIENCE_MS)
        yield page
