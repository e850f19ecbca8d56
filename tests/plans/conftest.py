"""Plans are held against labkit's JavaScript, as pictures are."""

from __future__ import annotations

from tests.widgets.conftest import evaluate, modules

__all__ = ["evaluate", "modules"]
