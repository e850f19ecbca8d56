"""Kernels that the tests of this folder share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from live_kernel import Notebook

from labkit.launch import supervisor


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


@pytest.fixture(autouse=True)
def time_to_say_where_ranks_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner is kept waiting for half a second at most; on a loaded machine a rank takes longer to say it."""
    monkeypatch.setattr(supervisor, "_ARRIVE_LIMIT", 30.0)
    monkeypatch.setattr(supervisor, "_STACK_LIMIT", 30.0)
