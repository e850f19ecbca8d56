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


@contextlib.contextmanager
def running() -> Iterator[Any]:
    """Start it and give it, as Playwright has it; skip the test in words where there is none."""
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium or Chrome on this machine: apt install chromium")
    if shutil.which("node") is None and not sys.platform.startswith("linux"):
        pytest.skip("tried on Linux only")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=PATIENCE_MS)
        new_context, new_page = chromium.new_context, chromium.new_page

        def patient_context(**options: Any) -> Any:
            context = new_context(**options)
            context.set_default_timeout(PATIENCE_MS)
            return context

        def patient_page(**options: Any) -> Any:
            page = new_page(**options)
            page.set_default_timeout(PATIENCE_MS)
            return page

        chromium.new_context, chromium.new_page = patient_context, patient_page
        yield chromium
        chromium.close()
