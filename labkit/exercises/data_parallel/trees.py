"""Nested values as trees (drivers.nested_values): cut, joined, compared; the first difference in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Value
from labkit.checks.compare import listing
from labkit.checks.tensor_values import close

KINDS = ("tuple", "list", "dict")


def parts(tree: Value) -> tuple[str, list[tuple[str, Value]]]:
    """Return a container's kind and its items with the words that lead to them; "" for what is no container."""
    if isinstance(tree, dict) and len(tree) == 1:
        ((kind, items),) = tree.items()
        if kind == "dict" and isinstance(items, dict):
            return kind, [(f"[{key!r}]", item) for key, item in items.items()]
        if kind in KINDS and isinstance(items, list):
            return kind, [(f"[{place}]", item) for place, item in enumerate(items)]
    return "", []


def kinds(tree: Value) -> Any:
    """Return the kinds of a tree's containers, as they are nested."""
    kind, items = parts(tree)
    return (kind, [kinds(item) for _, item in items]) if kind else ""


def rebuilt(tree: Value, items: Sequence[Value]) -> Value:
    """Return a container of the same kind and keys with other items."""
    ((kind, old),) = cast(dict[str, Value], tree).items()
    return {kind: dict(zip(cast(dict[str, Value], old), items, strict=True)) if kind == "dict" else list(items)}


def leaves(tree: Value) -> Iterator[Tensor]:
    """Yield the tensors of a tree in order."""
    if isinstance(tree, Tensor):
        yield tree
    for _, item in parts(tree)[1]:
        yield from leaves(item)


def first_difference(got: Value, wanted: Value, where: str) -> str | None:
    """Return the first place where two trees differ, as a sentence, or None.

    Args:
        got: What came.
        wanted: What must come.
        where: What is compared, in words: "piece 1".
    """
    kind, items = parts(wanted)
    if kind:
        mine, came = parts(got)
        if mine != kind:
            return f"{where} is {in_words(got)}, expected a {kind}"
        if [place for place, _ in came] != [place for place, _ in items]:
            return f"{where} has {len(came)} items, expected {len(items)} with the same keys"
        found = (first_difference(a, b, where + place) for (_, a), (place, b) in zip(came, items, strict=True))
        return next((each for each in found if each), None)
    if isinstance(wanted, Tensor):
        if not isinstance(got, Tensor):
            return f"{where} is {in_words(got)}, expected a tensor on the CPU of shape {tuple(wanted.shape)}"
        if got.shape != wanted.shape:
            return f"{where} has shape {tuple(got.shape)}, expected {tuple(wanted.shape)}"
        if close(got, wanted):
            return None
        if got.dtype != wanted.dtype and torch.equal(got.double(), wanted.double()):
            return f"{where} holds the right numbers as {got.dtype}, expected {wanted.dtype}"
        first = int((~torch.isclose(got.double(), wanted.double())).flatten().nonzero().flatten()[:1].sum())
        return f"{where} holds {listing(got, first)}, expected {listing(wanted, first)}"
    return (
        None
        if type(got) is type(wanted) and got == wanted
        else f"{where} is {in_words(got)}, expected {in_words(wanted)}"
    )


def in_words(tree: Value) -> str:
    """Return what a tree is, in a few words."""
    if isinstance(tree, Tensor):
        return f"a tensor on the CPU of shape {tuple(tree.shape)}"
    if isinstance(tree, dict) and len(tree) == 1:
        ((kind, items),) = tree.items()
        if kind in KINDS:
            return f"a {kind}"
        return f"a tensor on device {kind!r} of shape {tuple(cast(list[int], items))}"
    return "nothing (None)" if tree is None else f"{tree!r}"[:80]


def drawn(generator: torch.Generator, *shape: int) -> Tensor:
    """Return whole numbers from 1 to 999 in float64."""
    return torch.randint(1, 1000, shape, generator=generator).double()


def gradient_difference(got: Any, wanted: Sequence[Tensor]) -> str | None:
    """Return what is wrong with the gradients that came, as a sentence, or None."""
    for place, gradient in enumerate(wanted):
        mine = got[place] if isinstance(got, list) and place < len(got) else None
        if not close(mine, gradient):
            shown = listing(mine) if isinstance(mine, Tensor) else "nothing (None)"
            return f"the gradient of tensor {place} of what was given is {shown}, expected {listing(gradient)}"
    return None


def no_gradient(got: Any) -> bool:
    """Return whether some gradient is None."""
    return isinstance(got, list) and any(each is None for each in got)
