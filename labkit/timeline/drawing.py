"""Who draws a timeline: packages above this one, named by labkit's facade and loaded when a timeline is shown."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import labkit


def draw(what: str, *args: Any) -> Any:
    """Return what the function that labkit.DRAWS names for it returns."""
    module, _, function = labkit.DRAWS[what].rpartition(".")
    return getattr(import_module(module), function)(*args)
