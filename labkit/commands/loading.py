"""Modules are imported when their command runs, so that ``labkit --help`` is quick and loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from labkit.errors import EnvironmentProblem


def load(module: str, function: str) -> Any:
    """Return one function of the package, or say that this copy of labkit lacks it (a student release does)."""
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("labkit"):
            raise
        raise EnvironmentProblem(
            f"this copy of labkit has no {error.name}; it is part of the full repository, not of a student release"
        ) from error
