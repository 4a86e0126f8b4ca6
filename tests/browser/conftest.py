"""A page of a real browser, in both themes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A page of a browser with this theme."""
    playwright = pytest.importorskip("playwright.sync_api")
    # Playwright's synchronous interface runs a loop in this thread; Django takes that for a view's.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(color_scheme=request.param, viewport={"width": 1280, "height": 900})
        context.set_default_timeout(15_000)
        yield context.new_page()
        browser.close()
