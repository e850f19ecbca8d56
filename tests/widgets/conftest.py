"""Labkit's JavaScript, in a real Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from tests.widgets.in_page import Evaluate, Modules


@pytest.fixture(scope="session")
def modules(browser: Any) -> Modules:
    """A page that knows labkit's modules."""
    return Modules(browser)


@pytest.fixture
def evaluate(modules: Modules) -> Evaluate:
    """Return a function that gives the value of an expression in which the functions of a folder are known."""
    return modules.evaluate
