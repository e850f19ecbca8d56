"""A real Chromium, headless, that waits as long as a loaded machine takes."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from labkit.doctor import find_browser

PATIENCE_MS = 180_000
"""How long a test waits for what comes, where it says nothing else: a loaded machine takes long for a page."""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


class Patient:
    """A browser as Playwright has it, whose pages wait long; it is started again where its driver has died."""

    def __init__(self, playwright: Any, path: str) -> None:
        self._playwright, self._path = playwright, path
        self._start()

    def _start(self) -> None:
        self._driver = self._playwright.sync_playwright().start()
        self._chromium = self._driver.chromium.launch(executable_path=self._path, args=ARGUMENTS, timeout=PATIENCE_MS)

    def _made(self, kind: str, options: dict[str, Any]) -> Any:
        try:
            made = getattr(self._chromium, kind)(**options)
        except self._playwright.Error:  # it died between two tests: the next one is none the worse
            self.stop()
            self._start()
            made = getattr(self._chromium, kind)(**options)
        made.set_default_timeout(PATIENCE_MS)
        return made

    def new_context(self, **options: Any) -> Any:
        """Return a new context, whose pages wait long."""
        return self._made("new_context", options)

    def new_page(self, **options: Any) -> Any:
        """Return a new page that waits long."""
        return self._made("new_page", options)

    def stop(self) -> None:
        """End it, whether it lives or not."""
        for end in (self._chromium.close, self._driver.stop):
            with contextlib.suppress(self._playwright.Error):
                end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chromium, name)


@contextlib.contextmanager
def running() -> Iterator[Any]:
    """Start it and give it, as Playwright has it; skip the test in words where there is none."""
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium or Chrome on this machine: apt install chromium")
    if shutil.which("node") is None and not sys.platform.startswith("linux"):
        pytest.skip("tried on Linux only")
    browser = Patient(pytest.importorskip("playwright.sync_api"), path)
    yield browser
    browser.stop()
