"""Kernels that the tests of this folder share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from live_kernel import Notebook


@pytest.fixture(scope="session")
def notebook() -> Iterator[Notebook]:
    """A kernel that tests share; each leaves it usable."""
    kernel = Notebook()
    yield kernel
    kernel.stop()


@pytest.fixture
def doomed_notebook() -> Iterator[Notebook]:
    """A kernel of its own for a test that ends it."""
    kernel = Notebook()
    yield kernel
    kernel.stop()


@pytest.fixture(autouse=True)
def no_forced_start_method(monkeypatch: pytest.MonkeyPatch) -> None:
    if "LABKIT_START_METHOD" in os.environ:
        monkeypatch.delenv("LABKIT_START_METHOD")
