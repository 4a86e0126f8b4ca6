"""A browser for the tests that need one; without Debian's Chromium or Playwright they are left out."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.browser import Visit
from tests.support.station import Station
from tests.support.valkey import ValkeyServer
from tests.support.waiting import PATIENCE_S

CHROMIUM = shutil.which("chromium")
TIMEOUT_MS = PATIENCE_S * 1000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs Debian's chromium")
    # Playwright's synchronous interface runs a loop in this thread; Django takes that for a view's.
    with pytest.MonkeyPatch.context() as patch, playwright.sync_playwright() as started:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Visit]]:
    """Opens a page on the console at an address; options are those of a browser's context."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    contexts: list[Any] = []

    def opened(url: str, **options: Any) -> Visit:
        context = chromium.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        return Visit(context.new_page(), axe.Axe(), url)

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="package")
def station(tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyServer) -> Iterator[Station]:
    """A control plane in processes of its own."""
    if CHROMIUM is None:
        pytest.skip("needs Debian's chromium")
    with Station(tmp_path_factory.mktemp("station"), valkey_server.url) as found:
        yield found
