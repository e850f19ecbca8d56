"""broadcast_module and average_gradients: the same model on every rank, and gradients averaged after backward."""

from __future__ import annotations

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.tensor_values import close


def names_of(case: Case, got: Got, key: str, right: list[Values]) -> set[str]:
    """Return the names of the tensors under a key that differ on some rank."""
    found: set[str] = set()
    if isinstance(got, tuple):
        for values, wanted in zip(got, right, strict=True):
            came, should = values.get(key), wanted[key]
            if isinstance(came, dict) and isinstance(should, dict):
                found |= {name for name in should if not close(came.get(name), should[name])}
    return found


def same(state: Value, other: dict[str, Value]) -> bool:
    """Return whether a state holds these tensors, up to rounding."""
    return isinstance(state, dict) and all(close(state.get(name), value) for name, value in other.items())
