"""A value cut into pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.scatter.driver import drive
from labkit.exercises.data_parallel.shares import balanced
from labkit.exercises.data_parallel.trees import (
    drawn,
    first_difference,
    gradient_difference,
    kinds,
    leaves,
    no_gradient,
    parts,
    rebuilt,
)
from labkit.words import plural

Sizes = Callable[[int, int], list[int]]


def scatter_case(name: str, value: Value, devices: int | Sequence[str]) -> Case:
    """Return a case of scatter; devices by name, or how many CPUs."""
    names = ["cpu"] * devices if isinstance(devices, int) else list(devices)
    # Nothing goes backward from a device that holds no numbers.
    return Case(name, 1, ({"value": value, "devices": cast(Value, names), "gradients": "meta" not in names},))


def _devices(case: Case) -> list[str]:
    return cast(list[str], case.inputs[0]["devices"])


def batch_of(case: Case) -> int | None:
    """Return the number of samples, None where no tensor has a dimension."""
    return next((len(t) for t in leaves(case.inputs[0]["value"]) if t.dim()), None)


def pieces_of(tree: Value, devices: Sequence[str], sizes: Sequence[int]) -> list[Value]:
    """Return one piece for each size."""
    kind, items = parts(tree)
    if kind:
        cut = [pieces_of(item, devices, sizes) for _, item in items]
        return [rebuilt(tree, [each[number] for each in cut]) for number in range(len(sizes))]
    if isinstance(tree, Tensor) and tree.dim():
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        rows = [tree[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    else:
        rows = [cast(Tensor, tree)] * len(sizes)
    if not isinstance(tree, Tensor):
        return list(rows)
    return [row if d == "cpu" else {d: list(row.shape)} for row, d in zip(rows, devices, strict=False)]


def expected(case: Case) -> list[Values]:
    """Return the pieces and gradients that must come (the oracle)."""
    count, devices = batch_of(case), _devices(case)
    sizes = [0] * len(devices) if count is None else balanced(count, len(devices))
    right: dict[str, Value] = {"pieces": pieces_of(case.inputs[0]["value"], devices, sizes)}
    watched = [t for t in leaves(case.inputs[0]["value"]) if t.is_floating_point()]
    if case.inputs[0]["gradients"] and watched:  # as the driver brings them
        factors = torch.arange(1.0, len(sizes) + 1, dtype=torch.float64)
        rows = factors.repeat_interleave(torch.tensor(sizes))
        right["gradients"] = [
            rows.reshape(-1, *[1] * (t.dim() - 1)).expand_as(t).clone() if t.dim() else factors.sum() for t in watched
        ]
    return [right]


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether every piece is right, lies where it must, and gradients flow back."""
    assert isinstance(got, tuple)
    right, came = expected(case)[0], got[0].get("pieces")
    wanted = cast(list[Value], right["pieces"])
    if not isinstance(came, list):
        return Verdict(False, f"scatter returned {came!r:.60}, expected a list of pieces.")
    if len(came) != len(wanted):
        return Verdict(False, f"There are {plural(len(came), 'piece')}, expected {len(wanted)}.")
    for number, (mine, piece) in enumerate(zip(came, wanted, strict=True)):
        wrong = first_difference(mine, piece, f"piece {number}")
        if wrong:
            return Verdict(False, f"{wrong}.")
    if "gradients" in right:
        wrong = gradient_difference(got[0].get("gradients"), cast(list[Tensor], right["gradients"]))
        if wrong:
            return Verdict(False, f"The pieces are right, but {wrong}.")
    return Verdict(True)


def _came(got: Got) -> list[Value]:
    came = got[0].get("pieces") if isinstance(got, tuple) else None
    return came if isinstance(came, list) else []


def _sizes(got: Got) -> list[int]:
    """Return the length of the first tensor in each piece."""
    first = [next((t for t in leaves(piece) if t.dim()), None) for piece in _came(got)]
    return [len(t) if t is not None else -1 for t in first]


def _like(sizes: Sizes) -> Callable[[Case, Got, Wire], bool]:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        count = batch_of(case)
        return count is not None and bool(_came(got)) and _sizes(got) == sizes(count, len(_devices(case)))

    return seen


def _chunks(count: int, devices: int) -> list[int]:
    size = -(-count // devices)
    return [min(size, count - start) for start in range(0, count, size)]


def _with_empty(count: int, devices: int) -> list[int]:
    return [count // devices + (place < count % devices) for place in range(devices)]


def _loses_samples(case: Case, got: Got, wire: Wire) -> bool:
    count = batch_of(case)
    return count is not None and bool(_came(got)) and -1 not in _sizes(got) and sum(_sizes(got)) < count


def _has_empty(tree: Value) -> bool:
    kind, items = parts(tree)
    return bool(kind) and (not items or any(_has_empty(item) for _, item in items))


def _swallowed(case: Case, got: Got, wire: Wire) -> bool:
    nothing = isinstance(got, tuple) and got[0].get("pieces") == []
    failed = isinstance(got, Failure) and got.error in ("IndexError", "StopIteration", "ValueError")
    return _has_empty(case.inputs[0]["value"]) and (nothing or failed)


def _kind_changed(case: Case, got: Got, wire: Wire) -> bool:
    wanted = cast(list[Value], expected(case)[0]["pieces"])
    return any(kinds(a) != kinds(b) for a, b in zip(_came(got), wanted, strict=False))


def _uncut(tree: Value, piece: Value) -> str:
    """Return the kind of the first container whose tensors are all in a piece as they were, "" if there is none."""
    (kind, items), (_, came) = parts(tree), parts(piece)
    if not kind:
        return ""
    before, after = ([t.shape for t in leaves(each) if t.dim()] for each in (tree, piece))
    if before and before == after:
        return kind
    return next((found for (_, a), (_, b) in zip(items, came, strict=False) if (found := _uncut(a, b))), "")


def _goes_whole(kind: str) -> Callable[[Case, Got, Wire], bool]:
    """Return a test of whether what is cut elsewhere comes whole in every container of this kind."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        count = batch_of(case)
        return (
            count is not None
            and min(count, len(_devices(case))) > 1
            and bool(_came(got))
            and all(_uncut(case.inputs[0]["value"], piece) == kind for piece in _came(got))
        )

    return seen


def _stayed(case: Case, got: Got, wire: Wire) -> bool:
    pairs = zip(_came(got), _devices(case), strict=False)
    return any(device != "cpu" and any(t.dim() for t in leaves(piece)) for piece, device in pairs)


def _in_turns(case: Case, got: Got, wire: Wire) -> bool:
    whole = next((t for t in leaves(case.inputs[0]["value"]) if t.dim()), None)
    mine = [next((t for t in leaves(piece) if t.dim()), None) for piece in _came(got)]
    step = len(_devices(case))
    return (
        whole is not None
        and len(mine) > 1
        and all(t is not None and torch.equal(t, whole[place::step]) for place, t in enumerate(mine))
    )


_GENERATOR = torch.Generator().manual_seed(101)

EXERCISE = judged(
    id="scatter",
    functions=("scatter",),
    driver=drive,
    oracle=expected,
    judge=judge,
    visible=(
        scatter_case("10 samples, 4 devices", drawn(_GENERATOR, 10, 2), 4),
        scatter_case("3 samples, 5 devices", drawn(_GENERATOR, 3), 5),
        scatter_case(
            "arguments and keywords: a tuple and a dict",
            {
                "tuple": [
                    {"tuple": [drawn(_GENERATOR, 7, 2), {"list": [drawn(_GENERATOR, 7), "a text"]}]},
                    {"dict": {"mask": drawn(_GENERATOR, 7, 1, 2), "scale": 2.5}},
                ]
            },
            3,
        ),
        scatter_case("no keywords: an empty dict", {"tuple": [{"tuple": [drawn(_GENERATOR, 5)]}, {"dict": {}}]}, 2),
        scatter_case(
            "a tensor without dimensions", {"dict": {"x": drawn(_GENERATOR, 3), "t": torch.tensor(0.5).double()}}, 4
        ),
        scatter_case("two kinds of device", {"list": [drawn(_GENERATOR, 5, 2)]}, ["cpu", "meta", "cpu"]),
    ),
    distributed=False,
    hints=(
        "Begin with one tensor: which function of torch cuts into pieces whose sizes differ by at most one? Then call "
        "scatter itself for what is inside a tuple, a list or a dict.",
        "tensor_split(min(len(value), len(devices))). For a tuple: scatter every item, then zip the results, so that "
        "piece n of every item comes together. zip of nothing gives nothing, so an empty container needs a thought: it "
        "goes to every device as it is.",
        "[type(value)(parts) for parts in zip(*(scatter(item, devices) for item in value))] for a tuple or list that "
        "is not empty; the same with value.values() and dict(zip(value, parts)) for a dict; at the end [value] * "
        "len(devices).",
    ),
    mistakes=(
        Mistake(
            "pieces as chunk cuts them",
            "chunk makes pieces of equal size and one small rest (3, 3, 3, 1), and sometimes too few: tensor_split "
            "makes sizes that differ by at most one.",
            lambda case, got, wire: _like(_chunks)(case, got, wire) and not _like(balanced)(case, got, wire),
        ),
        Mistake(
            "empty pieces",
            "With fewer samples than devices some pieces are empty: make as many pieces as there are samples.",
            lambda case, got, wire: _like(_with_empty)(case, got, wire) and 0 in _sizes(got),
        ),
        Mistake(
            "samples lost",
            "Some samples are in no piece: the sizes n // N leave a rest. The first pieces take one more each.",
            _loses_samples,
        ),
        Mistake(
            "an empty container swallows all",
            "An empty tuple or dict has no items, so zip over its items makes no pieces, and zip around it makes none "
            "of anything. Give every device the empty container itself.",
            _swallowed,
            certain=True,
        ),
        Mistake(
            "lists not cut",
            "What is in a list went whole to every device: a list is cut through, too.",
            _goes_whole("list"),
        ),
        Mistake(
            "dicts not cut",
            "What is in a dict went whole to every device: a dict is cut through, too.",
            _goes_whole("dict"),
        ),
        Mistake(
            "every device gets all",
            "Every device got the whole batch. What is inside tuples, lists and dicts must be cut, too.",
            lambda case, got, wire: (
                batch_of(case) is not None
                and len(_devices(case)) > 1
                and bool(_sizes(got))
                and set(_sizes(got)) == {batch_of(case)}
                and batch_of(case) != 1
            ),
        ),
        Mistake(
            "in turns",
            "Device n got samples n, n + N, n + 2 N: gather could not put them in order again. Cut consecutive pieces.",
            _in_turns,
        ),
        Mistake(
            "kind changed",
            "A tuple must stay a tuple, a list a list and a dict a dict, or the model is called with something else.",
            _kind_changed,
        ),
        Mistake(
            "not on its device",
            "The pieces are still where the batch was: piece.to(device).",
            _stayed,
        ),
        Mistake(
            "gradients cut off",
            "The pieces have lost their connection with the batch (detach, .data, torch.tensor(...) or no_grad): "
            "slicing and .to(device) keep it.",
            lambda case, got, wire: isinstance(got, tuple) and no_gradient(got[0].get("gradients")),
        ),
    ),
)
