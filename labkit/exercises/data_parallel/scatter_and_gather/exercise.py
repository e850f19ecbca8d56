"""A batch cut into pieces, and outputs joined again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import listing
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING, OneOf
from labkit.checks.tensor_values import close
from labkit.checks.values import listed, named_tensors, records, tensors, texts
from labkit.checks.wire import Wire
from labkit.exercises.data_parallel.scatter_and_gather.driver import drive
from labkit.exercises.data_parallel.shares import balanced
from labkit.words import plural

_CHUNK, _EMPTY, _LOST, _ALL, _TURNS, _NOT_DICTS, _KEYS, _STAYED, _CUT_OFF = (
    "pieces as chunk cuts them", "empty pieces", "samples lost", "every device gets all", "in turns",
    "pieces that are not dicts", "keys lost", "not on its device", "gradients cut off",
)  # fmt: skip
_STACK, _DIM, _MIXED, _ORDER, _FIRST, _LOSSES = (
    "stack for cat", "along another dimension", "mixed instead of joined", "in another order", "only the first",
    "losses cannot be joined",
)  # fmt: skip
_NOTHING = "nothing returned"
_FEW, _ALONE = "the last piece is missing", "a single loss left as it is"
_LONGER, _FEWER, _FIRST_PIECE = "longer pieces not first", "too few pieces", "the first piece for everybody"
_REST, _REPEATED = "the remainder in the last piece", "samples repeated"
_FEATURES, _FLAT = "cut along another dimension", "other dimensions lost"
_COLUMN, _DTYPE = "a column of losses", "another dtype"


def scatter_case(name: str, batch: Mapping[str, Tensor], devices: int | Sequence[str]) -> Case:
    """Return a case of scatter; devices by name, or how many CPUs."""
    return Case(name, 1, ({"batch": dict(batch), "devices": _names(devices)},))


def gather_case(name: str, outputs: Sequence[Tensor], device: str = "cpu") -> Case:
    """Return a case of gather."""
    return Case(name, 1, ({"outputs": list(outputs), "devices": [device]},))


def drawn(generator: torch.Generator, *shape: int) -> Tensor:
    """Return whole numbers from 1 to 999 in float64."""
    return torch.randint(1, 1000, shape, generator=generator).double()


def _names(devices: int | Sequence[str]) -> list[Value]:
    return ["cpu"] * devices if isinstance(devices, int) else list(devices)


def _batch(case: Case) -> dict[str, Tensor]:
    return named_tensors(case.inputs[0], "batch")


def _outputs(case: Case) -> list[Tensor]:
    return tensors(case.inputs[0], "outputs")


def _devices(case: Case) -> list[str]:
    return texts(case.inputs[0], "devices")


def _rows(case: Case) -> int:
    return len(next(iter(_batch(case).values())))


def _there(tensor: Tensor, device: str) -> Value:
    """Return a tensor as the driver describes it on a device."""
    return tensor if device == "cpu" else {device: list(tensor.shape)}


def _pieces(case: Case, sizes: Sequence[int]) -> list[Value]:
    """Return the batch in pieces of these sizes."""
    cut = {key: torch.split(tensor, list(sizes)) for key, tensor in _batch(case).items()}
    return [
        {key: _there(parts[place], device) for key, parts in cut.items()}
        for place, device in zip(range(len(sizes)), _devices(case), strict=False)
    ]


def _joined(outputs: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(outputs)) if outputs[0].dim() == 0 else torch.cat(list(outputs))


def expected(case: Case) -> list[Values]:
    """Return the pieces or the whole, and the gradients that must come (the oracle)."""
    right: dict[str, Value] = {}
    if "batch" in case.inputs[0]:
        sizes = balanced(_rows(case), len(_devices(case)))
        right["pieces"] = _pieces(case, sizes)
        weights = torch.arange(1.0, len(sizes) + 1).repeat_interleave(torch.tensor(sizes)).double()
        gradients = [
            weights.reshape(-1, *[1] * (t.dim() - 1)).expand_as(t).clone() if t.is_floating_point() else None
            for t in _batch(case).values()
        ]
    else:
        whole = _joined(_outputs(case))
        right["whole"] = _there(whole, _devices(case)[0])
        all_of = torch.arange(1.0, whole.numel() + 1, dtype=torch.float64)
        parts = torch.split(all_of, [t.numel() for t in _outputs(case)])
        gradients = [part.reshape(t.shape) for part, t in zip(parts, _outputs(case), strict=True)]
    if set(_devices(case)) == {"cpu"}:
        right["gradients"] = cast("list[Value]", gradients)
    else:
        right["followed"] = True
    return [right]


def structure(case: Case) -> list[Any]:
    """Return the oracle's keys, and that each gradient is there or None; all else is looked at here."""
    (right,) = expected(case)
    keys: dict[str, Any] = dict.fromkeys(right, ANYTHING)
    if "gradients" in right:
        keys["gradients"] = [OneOf((Tensor, None)) for _ in listed(right, "gradients")]
    return [keys]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with pieces or whole, and then with gradients."""
    came, right = got[0], expected(case)[0]
    yield from _wrong_pieces(case, came["pieces"], right) if "pieces" in right else _wrong_whole(case, came, right)
    if came.get("followed") is False:
        yield Finding(_CUT_OFF, "What lies on another device now has no path back for gradients.")
    if "gradients" in right:
        wanted, mine = listed(right, "gradients"), listed(came, "gradients")
        for place, (gradient, other) in enumerate(zip(wanted, mine, strict=True)):
            if not close(other, gradient):
                shown = listing(other) if isinstance(other, Tensor) else "None"
                what = list(_batch(case))[place] if "pieces" in right else f"output {place}"
                text = f"The values are right, but the gradient of {what} is {shown}."
                yield Finding(_CUT_OFF if other is None else "", text, listing(cast(Tensor, gradient)), shown)


def _wrong_pieces(case: Case, came: Value, right: Values) -> Iterator[Finding]:
    wanted = records(right, "pieces")
    if not isinstance(came, list):
        yield Finding(_NOTHING if came is None else "", f"scatter returned {came!r:.60}, expected a list of dicts.")
        return
    if not all(isinstance(piece, dict) for piece in came):
        yield Finding(_NOT_DICTS, "scatter returned a list whose items are not all dicts.", "a dict for each piece")
        return
    pieces = cast("list[dict[str, Value]]", came)
    if any(set(piece) != set(_batch(case)) for piece in pieces):
        keys = next(sorted(piece) for piece in pieces if set(piece) != set(_batch(case)))
        yield Finding(_KEYS, f"A piece has the keys {keys}, expected {sorted(_batch(case))}.")
        return
    sizes, due = _sizes(pieces), _sizes(wanted)
    mistake = as_if(pieces, [(name, lambda way=way: way(case)) for name, way in _WAYS.items()], _same)  # type: ignore[misc]
    if sizes != due:
        count = f"{plural(_rows(case), 'sample')} on {plural(len(_devices(case)), 'device')}"
        if not mistake:
            lost = _FEW if sizes == due[: len(sizes)] else _LOST
            repeated = _REPEATED if len(sizes) == len(_devices(case)) > _rows(case) else ""
            cut_elsewhere = _FEATURES if len(sizes) > 1 and set(sizes) == {_rows(case)} else ""
            mistake = lost if sum(sizes) < _rows(case) else cut_elsewhere or repeated or _whole(sizes, due)
        yield Finding(mistake, f"{count}: the pieces have {sizes} samples.", str(due), str(sizes))
        return
    for place, (piece, other) in enumerate(zip(pieces, wanted, strict=True)):
        for key, tensor in other.items():
            mine = piece[key]
            if isinstance(tensor, dict) != isinstance(mine, dict):
                there = next(iter(tensor)) if isinstance(tensor, dict) else "cpu"
                yield Finding(_STAYED, f"{key!r} of piece {place} is not on device {there!r}.")
            elif (isinstance(tensor, dict) and tensor != mine) or (
                isinstance(tensor, Tensor) and not close(mine, tensor)
            ):
                text = f"{key!r} of piece {place} is {_in_words(mine)}, expected {_in_words(tensor)}."
                name, more = _dtypes(mine, tensor)
                yield Finding(name or mistake, text + more)


def _whole(sizes: Sequence[int], due: Sequence[int]) -> str:
    """Return the mistake of pieces that hold all samples and have other sizes, or ""."""
    return _LONGER if sorted(sizes, reverse=True) == due else _FEWER if 0 < len(sizes) < len(due) else ""


def _wrong_whole(case: Case, came: Values, right: Values) -> Iterator[Finding]:
    mine, wanted = came["whole"], right["whole"]
    if (isinstance(wanted, Tensor) and not isinstance(mine, Tensor)) or (isinstance(wanted, dict) and mine != wanted):
        moved = isinstance(wanted, dict) and isinstance(mine, Tensor) and list(mine.shape) in wanted.values()
        name = _NOTHING if mine is None else _STAYED if moved else ""
        yield Finding(name, f"gather returned {_in_words(mine)}, expected {_in_words(wanted)}.")
    elif isinstance(wanted, Tensor) and isinstance(mine, Tensor) and not close(mine, wanted):
        numbers = mine.shape == wanted.shape and torch.allclose(mine.double(), wanted)
        if numbers and not any(isinstance(each, Tensor) for each in listed(came, "gradients")):
            return  # new tensors made of numbers lack dtype and gradient; the gradient is what matters
        outputs = _outputs(case)
        ways = [(name, lambda way=way: way(outputs)) for name, way in _OTHER_WHOLES]
        mistake = as_if(mine, ways, lambda a, b: a.shape == b.shape and torch.allclose(a.double(), b.double()))
        name, more = _dtypes(mine, wanted)
        text = f"gather returned {_in_words(mine)}, expected {_in_words(wanted)}.{more}"
        yield Finding(name or mistake, text, listing(wanted), listing(mine))


def _dtypes(mine: Value, wanted: Value) -> tuple[str, str]:
    """Return the mistake of a tensor that is right but for its dtype, and a sentence about dtypes that differ."""
    if not isinstance(mine, Tensor) or not isinstance(wanted, Tensor) or mine.dtype == wanted.dtype:
        return "", ""
    right = mine.shape == wanted.shape and torch.allclose(mine.double(), wanted.double())
    return _DTYPE if right else "", f" Its dtype is {mine.dtype}, expected {wanted.dtype}."


def _sizes(pieces: Sequence[Mapping[str, Value]]) -> list[int]:
    """Return how many samples each piece has, by its first tensor."""
    found = []
    for piece in pieces:
        first = next(iter(piece.values()), None)
        shape: object = list(first.shape) if isinstance(first, Tensor) else None
        if isinstance(first, dict):
            shape = next(iter(first.values()), None)
        found.append(int(shape[0]) if isinstance(shape, list) and shape else 0)
    return found


def _same(came: list[dict[str, Value]], other: list[dict[str, Value]]) -> bool:
    return len(came) == len(other) and all(
        close(mine[key], theirs[key]) if isinstance(theirs[key], Tensor) else mine[key] == theirs[key]
        for mine, theirs in zip(came, other, strict=True)
        for key in theirs
    )


def _chunk_sizes(case: Case) -> list[int]:
    return [len(piece) for piece in torch.arange(_rows(case)).chunk(len(_devices(case)))]


def _with_empty(case: Case) -> list[int]:
    return [len(piece) for piece in torch.arange(_rows(case)).tensor_split(len(_devices(case)))]


def _in_turns(case: Case) -> list[Any]:
    count = len(_devices(case))
    return [
        {key: _there(tensor[place::count], device) for key, tensor in _batch(case).items()}
        for place, device in zip(range(min(count, _rows(case))), _devices(case), strict=False)
    ]


def _the_first(case: Case) -> list[Any]:
    length, devices = balanced(_rows(case), len(_devices(case)))[0], _devices(case)[: _rows(case)]
    return [{key: _there(tensor[:length], device) for key, tensor in _batch(case).items()} for device in devices]


def _rest_to_the_last(case: Case) -> list[int]:
    count = min(_rows(case), len(_devices(case)))
    size = _rows(case) // count
    return [*[size] * (count - 1), _rows(case) - size * (count - 1)]


_WAYS: dict[str, Callable[[Case], list[Any]]] = {
    _CHUNK: lambda case: _pieces(case, _chunk_sizes(case)),
    _REST: lambda case: _pieces(case, _rest_to_the_last(case)),
    _EMPTY: lambda case: _pieces(case, _with_empty(case)),
    _TURNS: _in_turns,
    _FIRST_PIECE: _the_first,
    _ALL: lambda case: [{key: _there(t, device) for key, t in _batch(case).items()} for device in _devices(case)],
}
_OTHER_WHOLES: tuple[tuple[str, Callable[[list[Tensor]], Tensor]], ...] = (
    (_ALONE, lambda outputs: outputs[0] if len(outputs) == 1 and outputs[0].dim() == 0 else torch.empty(0)),
    (_COLUMN, lambda outputs: _joined(outputs).unsqueeze(-1) if outputs[0].dim() == 0 else torch.empty(0)),
    (_STACK, torch.stack),
    (_FLAT, lambda outputs: torch.cat([each.flatten() for each in outputs])),
    (_DIM, lambda outputs: torch.cat(outputs, -1)),
    (_MIXED, lambda outputs: torch.stack(outputs).mean(0)),
    (_MIXED, lambda outputs: torch.stack(outputs).sum(0)),
    (_ORDER, lambda outputs: _joined(outputs[::-1])),
    (_FIRST, lambda outputs: outputs[0]),
)


def _in_words(value: Value) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}, {listing(value)}" if value.numel() else "an empty tensor"
    if isinstance(value, dict) and len(value) == 1:
        ((device, shape),) = value.items()
        return f"a tensor of shape {tuple(cast(list[int], shape))} on device {device!r}"
    return f"{value!r:.60}"


_G = torch.Generator().manual_seed(101)
EXERCISE = declared(
    id="scatter_and_gather",
    functions=("scatter", "gather"),
    driver=drive,
    oracle=expected,
    structure=structure,
    looks=(find,),
    visible=(
        scatter_case("scatter: 10 samples, 4 devices", {"x": drawn(_G, 10, 2)}, 4),
        scatter_case(
            "scatter: three tensors of 7 samples, 3 devices",
            {"x": drawn(_G, 7, 2), "mask": drawn(_G, 7), "numbers": torch.arange(7)},
            3,
        ),
        scatter_case("scatter: 3 samples, 5 devices", {"x": drawn(_G, 3, 1, 2), "y": drawn(_G, 3)}, 5),
        scatter_case("scatter: two kinds of device", {"x": drawn(_G, 5, 2)}, ["cpu", "meta", "meta"]),
        gather_case("gather: outputs of 3, 2 and 2 samples", [drawn(_G, size, 2) for size in (3, 2, 2)]),
        gather_case("gather: three outputs of 2 samples", [drawn(_G, 2, 3) for _ in range(3)]),
        gather_case("gather: four losses", [drawn(_G) for _ in range(4)]),
        gather_case("gather: to another device", [drawn(_G, 2), drawn(_G, 1)], "meta"),
        gather_case("gather: one output of 2 samples", [drawn(_G, 2, 3)]),
        gather_case("gather: one loss", [drawn(_G)]),
    ),
    distributed=False,
    hints=(
        "Begin with one tensor: how many pieces do you need, and which function of torch cuts into pieces whose sizes "
        "differ by at most one? On the way back, what is special about a tensor without dimensions?",
        "The number of pieces is the smaller of samples and devices. Cut every tensor into that many with "
        "tensor_split; "
        "piece i of the batch then takes piece i of each. gather: torch.cat joins along the first dimension, "
        "torch.stack "
        "makes a new one.",
        "scatter: count = min(len(devices), samples), and {key: tensor.tensor_split(count)[i].to(devices[i]) for key, "
        "tensor in batch.items()} for every i. gather: there = [output.to(device) for output in outputs], then "
        "torch.stack(there) if there[0].dim() == 0 else torch.cat(there).",
    ),
    mistakes=(
        Mistake(_LONGER, "The sizes are right but their order is not: longer pieces come first."),
        Mistake(_FEWER,
                "There are too few pieces: as many as devices, or as samples where those are fewer. A batch has as "
                "many samples as each of its tensors is long, not as one of its keys."),
        Mistake(_FIRST_PIECE, "Every device gets the first piece: piece i belongs on devices[i]."),
        Mistake(_NOTHING, "The function returned None: print shows a value, return hands it back."),
        Mistake(_CHUNK,
                "chunk makes pieces of equal size and one small rest (3, 3, 3, 1), and sometimes too few. Here sizes "
                "differ by at most one."),
        Mistake(_REST,
                "The last piece got the whole remainder. Sizes differ by at most one: give the first pieces one "
                "sample more each."),
        Mistake(_EMPTY,
                "With fewer samples than devices some of your pieces are empty: make as many pieces as there are "
                "samples."),
        Mistake(_FEATURES,
                "Every piece has all samples: the tensors were cut along another dimension. The first one counts "
                "samples."),
        Mistake(_FLAT,
                "The outputs were joined element by element: along dimension 0 there are samples, and each keeps its "
                "other dimensions."),
        Mistake(_REPEATED,
                "You made a piece for every device and filled up with samples that are there already: then some count "
                "twice. With fewer samples than devices, make one piece for each sample and leave the other devices "
                "out."),
        Mistake(_FEW, "The last piece is missing: there are as many as devices, or as samples where those are fewer."),
        Mistake(_ALONE,
                "A single loss becomes a vector, too, of one entry: then whoever calls gather need not ask how many "
                "replicas there were."),
        Mistake(_LOST,
                "Some samples are in no piece: the sizes must add up to n, and n // N alone leaves a remainder. Give "
                "the first pieces one more each."),
        Mistake(_ALL,
                "Every device got the whole batch. Each should get its own samples, of every tensor in the batch."),
        Mistake(_TURNS,
                "Device i got samples i, i + N, i + 2 N: gather could not restore their order. Cut consecutive "
                "pieces."),
        Mistake(_NOT_DICTS,
                "A piece is a batch too: a dict with the same keys. You may have cut each tensor without regrouping "
                "its pieces into pieces of the batch."),
        Mistake(_KEYS, "A piece lacks some of the batch's keys: cut every tensor of the batch."),
        Mistake(_STAYED, "The result is not on the requested device: tensor.to(device)."),
        Mistake(_CUT_OFF,
                "The values are right but no gradient can flow back: detach, .data, .item() or torch.tensor(...) cut "
                "the graph. Slicing, cat, stack and .to(device) keep it."),
        Mistake(_STACK,
                "stack makes a new dimension: three outputs of 2 samples are 6 samples, not 3 x 2. Join them with cat.",
                says=("stack expects each tensor to be equal size",), certain=True),
        Mistake(_DIM, "The outputs were joined along another dimension; samples lie along dimension 0.",
                says=("must match except in dimension",), certain=True),
        Mistake(_MIXED, "The outputs were added up or averaged. Every sample has its own output; return all of them."),
        Mistake(_ORDER, "The outputs come in the order of the replicas, so that row i belongs to sample i."),
        Mistake(_FIRST, "That is the first replica's output alone."),
        Mistake(_COLUMN,
                "N losses became a tensor of N x 1 entries. A vector has one dimension: torch.stack makes one of "
                "outputs without any, as they are."),
        Mistake(_DTYPE,
                "The numbers are right and their dtype is not: torch.empty, torch.zeros and torch.tensor make float32 "
                "unless told otherwise. Slices, torch.cat and torch.stack keep what was there."),
        Mistake(_LOSSES,
                "A loss has no dimension along which cat could join it: those become a vector, one entry each.",
                says=("zero-dimensional tensor",), certain=True),
    ),
)  # fmt: skip
