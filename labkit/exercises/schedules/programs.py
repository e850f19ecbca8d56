"""Orders of work with several chunks, or with backward in two halves: cases, what comes of them, and what ran."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks import draws
from labkit.checks.case import Case, Value, Values
from labkit.checks.structure import Each
from labkit.checks.values import integer, integers, named_tensors, tensors, texts
from labkit.exercises.stages.pipeline_cases import Weigh, right_weight

Order = list[dict[str, Value]]
_WIDTHS = (4, 6, 5, 3, 7)
_KINDS = {"I": "BackwardInput", "W": "BackwardWeight"}


def read_order(text: str) -> Order:
    """Return an order of work as data: F1.2 is chunk 1 and microbatch 2; F2, I2 and W2 are zero bubble's three."""
    found: Order = []
    for letter, chunk, microbatch in re.findall(r"([FBIW])(?:(\d+)\.)?(\d+)", text):
        if chunk:
            kind = {"F": "ForwardChunk", "B": "BackwardChunk"}[letter]
            found.append({"kind": kind, "chunk": int(chunk), "microbatch": int(microbatch)})
        else:
            found.append({"kind": _KINDS.get(letter, "Forward"), "microbatch": int(microbatch)})
    return found


def one_after_another(num_chunks: int, num_microbatches: int) -> str:
    """Return GPipe's order for several chunks: all microbatches through each, and all the way back."""
    there = [f"F{chunk}.{m}" for chunk in range(num_chunks) for m in range(num_microbatches)]
    back = [f"B{chunk}.{m}" for chunk in reversed(range(num_chunks)) for m in range(num_microbatches)]
    return " ".join(there + back)


def linear_case(name: str, seed: int, shape: Sequence[int], bias: bool = True, frozen: Sequence[str] = ()) -> Case:
    """Return a case of one layer: x has this shape, with its last dimension what enters."""
    draw = draws.generator(seed)
    out = shape[-1] + 2
    given: dict[str, Value] = {
        "x": _normal(draw, *shape), "weight": _normal(draw, out, shape[-1]),
        "bias": _normal(draw, out) if bias else None, "gradient": _normal(draw, *shape[:-1], out),
        "frozen": list(frozen),
    }  # fmt: skip
    return Case(name, 1, (given,))


def program_case(
    name: str, seed: int, sizes: Sequence[int], orders: Sequence[str], *, rows: int = 0, before: bool = False
) -> Case:
    """Return a case in which each rank holds as many chunks as its order names, of odd widths, one weight frozen."""
    data = [read_order(text) for text in orders]
    num_ranks, num_chunks = len(data), 1 + max(cast(int, work.get("chunk", 0)) for order in data for work in order)
    widths = [_WIDTHS[place % len(_WIDTHS)] for place in range(num_ranks * num_chunks + 1)]
    more = [rows] if rows else []
    specs = [
        _spec(draws.generator(seed, "rank", part % num_ranks, part), widths[part], widths[part + 1], part)
        for part in range(num_ranks * num_chunks)
    ]
    first, last = draws.generator(seed, "rank", 0, "x"), draws.generator(seed, "rank", num_ranks - 1, "y")
    x = [_normal(first, size, *more, widths[0]) for size in sizes]
    y = [_normal(last, size, *more, widths[-1]) for size in sizes]
    inputs: list[Values] = []
    for rank in range(num_ranks):
        mine = range(rank, num_ranks * num_chunks, num_ranks)
        draw = draws.generator(seed, "rank", rank)
        entry: dict[str, Value] = {
            "orders": data, "rank": rank, "sizes": list(sizes), "chunks": [specs[part] for part in mine],
            "samples": [torch.zeros(*more, widths[part], dtype=torch.float64) for part in mine],
        }  # fmt: skip
        if rank == 0:
            entry["inputs"] = x
        if rank == num_ranks - 1:
            entry["targets"] = y
        if before:
            entry["before"] = {
                f"chunk {number}, {name}": _normal(draw, *tensor.shape)
                for number, part in enumerate(mine)
                for name, tensor in named_tensors(specs[part], "weights").items()
                if name not in texts(specs[part], "frozen")
            }
        inputs.append(entry)
    return Case(name, num_ranks, tuple(inputs), {"chunks": num_chunks})


def _normal(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def _spec(draw: torch.Generator, width_in: int, width_out: int, part: int) -> dict[str, Value]:
    weights: dict[str, Value] = {
        "first_weight": _normal(draw, width_in + 1, width_in) / 2, "first_bias": _normal(draw, width_in + 1) / 2,
        "second_weight": _normal(draw, width_out, width_in + 1) / 2,
    }  # fmt: skip
    if part % 2 == 0:
        weights["second_bias"] = _normal(draw, width_out) / 2
    return {"weights": weights, "frozen": ["first_weight"] if part == 1 else []}


def expected(case: Case) -> list[Values]:
    """Return each rank's gradients and the loss, from one process and the whole model (the oracle)."""
    return whole(case) if "orders" in case.inputs[0] else [one_layer(case)]


def whole(case: Case, weigh: Weigh = right_weight) -> list[Values]:
    """Return what each rank's driver must return if each microbatch's mean loss counts that much."""
    num_chunks = integer(case.about, "chunks")
    parts: list[dict[str, Tensor]] = []
    for part in range(case.world_size * num_chunks):
        spec = cast(list[dict[str, Any]], case.inputs[part % case.world_size]["chunks"])[part // case.world_size]
        leaves = {n: t.clone().requires_grad_(n not in spec["frozen"]) for n, t in spec["weights"].items()}
        old = cast(dict[str, Tensor], case.inputs[part % case.world_size].get("before") or {})
        for name, leaf in leaves.items():
            leaf.grad = old[key].clone() if (key := f"chunk {part // case.world_size}, {name}") in old else None
        parts.append(leaves)
    x, y = tensors(case.inputs[0], "inputs"), tensors(case.inputs[-1], "targets")
    sizes, total = integers(case.inputs[0], "sizes"), torch.zeros((), dtype=torch.float64)
    for number, (entered, target) in enumerate(zip(x, y, strict=True)):
        for leaves in parts:
            hidden = torch.tanh(nn.functional.linear(entered, leaves["first_weight"], leaves.get("first_bias")))
            entered = nn.functional.linear(hidden, leaves["second_weight"], leaves.get("second_bias"))
        loss = nn.functional.mse_loss(entered, target) * weigh(number, sizes, sum(sizes))
        torch.autograd.backward(loss)
        total = total + loss.detach()
    return [
        {
            "grads": {
                f"chunk {number}, {name}": leaf.grad
                for number, leaves in enumerate(parts[rank :: case.world_size])
                for name, leaf in leaves.items()
            },
            "loss": total if rank == case.world_size - 1 else None,
        }
        for rank in range(case.world_size)
    ]


def one_layer(case: Case) -> dict[str, Value]:
    """Return output and gradients of a linear layer that went backward twice."""
    given, frozen = case.inputs[0], texts(case.inputs[0], "frozen")
    leaves = {
        name: tensor.clone().requires_grad_(name not in frozen)
        for name in ("x", "weight", "bias")
        if isinstance(tensor := given[name], Tensor)
    }
    for _ in range(2):
        out = nn.functional.linear(leaves["x"], leaves["weight"], leaves.get("bias"))
        torch.autograd.backward(out, cast(Tensor, given["gradient"]))
    found: dict[str, Value] = {"out": out.detach()}
    return found | {f"gradient of {name}": leaf.grad for name, leaf in leaves.items()}


def planned(order: Order) -> list[str]:
    """Return what must run on a rank, in order: F, B and W with chunk and microbatch."""
    letters = {"Forward": "F", "ForwardChunk": "F", "BackwardInput": "B", "BackwardWeight": "W", "BackwardChunk": "BW"}
    return [
        f"{letter}{work.get('chunk', 0)}.{work['microbatch']}"
        for work in order
        for letter in letters[cast(str, work["kind"])]
    ]


def ran(order: Order, events: Sequence[str]) -> list[str]:
    """Return what ran, with the numbers of microbatches in place of those of calls, repetitions left out."""
    calls: dict[str, list[str]] = {}
    for work in planned(order):
        if work[0] == "F":
            calls.setdefault(work[1:].split(".")[0], []).append(work[1:])
    found: list[str] = []
    for event in events:
        chunk, call = event[1:].split(".")
        of_chunk = calls.get(chunk, [])
        name = f"{event[0]}{of_chunk[int(call)] if int(call) < len(of_chunk) else '?'}"
        if not found or found[-1] != name:
            found.append(name)
    return found


def structure(case: Case) -> list[Any]:
    """Return what results look like: the oracle's, and what ran in which order; of a single layer what was put off."""
    if "orders" in case.inputs[0]:
        notes: dict[str, Any] = {"returned": str, "attached": bool, "events": Each(str), "left_over": int}
    else:
        notes = {"at_once": Each(str), "put_off": int}
    return [{**right, **notes} for right in expected(case)]
