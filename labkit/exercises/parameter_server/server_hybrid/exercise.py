"""The hybrid step: compared with one process that has all samples, layers and rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import difference
from labkit.checks.judged import Mistake, judged
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.server_hybrid.driver import Dense, drive


def hybrid_case(
    name: str, seed: int, num_workers: int, samples: int, num_steps: int, group: Sequence[int] | None = None
) -> Case:
    """Return a case of server_hybrid; with a group, three ranks more than it needs stand beside it."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    draw = draws.generator(seed)
    dense: dict[str, Value] = {"first": normal(3, 4), "bias": normal(4), "frozen": normal(4), "second": normal(4)}
    table = normal(7, 3)
    world_size = num_workers if group is None else max(group) + 2
    inputs: list[dict[str, Value]] = []
    for rank in range(world_size):
        draw = draws.generator(seed, "rank", rank)
        keys: list[Value] = [torch.randint(0, 7, (samples, 2), generator=draw) for _ in range(num_steps)]
        targets: list[Value] = [normal(samples) for _ in range(num_steps)]
        each: dict[str, Value] = {"dense": dense, "table": table, "lr": 0.1, "keys": keys, "targets": targets}
        inputs.append(each | ({} if group is None else {"group": list(group)}))
    return Case(name, world_size, tuple(inputs))


def members(case: Case) -> list[int]:
    """Return the ranks that train."""
    group = case.inputs[0].get("group")
    return list(range(case.world_size)) if group is None else cast(list[int], group)


def structure(case: Case) -> list[Any]:
    """Return what results look like: the oracle's, and how often a member pulled."""
    return [right if "member" in right else {**right, "num_pulls": int} for right in expected(case)]


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: the dense part's gradients, in every step."""
    first = case.inputs[0]
    dense = cast(dict[str, Tensor], first["dense"])
    num_trained = sum(tensor.numel() for name, tensor in dense.items() if name != "frozen")
    return both_ways(members(case), num_trained * len(cast(list[Tensor], first["keys"])))


def _train(case: Case, weigh: Callable[[int], float] = lambda rank: 1.0) -> list[Values]:
    """Return what each rank should have, from one process; ranks' losses may be weighed otherwise (a mistake)."""
    ranks, first = members(case), case.inputs[0]
    model, table = Dense(cast(dict[str, Tensor], first["dense"])), cast(Tensor, first["table"])
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=cast(float, first["lr"]))
    losses: dict[int, list[Value]] = {rank: [] for rank in ranks}
    pushes: dict[int, list[Value]] = {rank: [] for rank in ranks}
    for step in range(len(cast(list[Tensor], first["keys"]))):
        optimizer.zero_grad()
        for rank in ranks:
            keys = cast(list[Tensor], case.inputs[rank]["keys"])[step]
            targets = cast(list[Tensor], case.inputs[rank]["targets"])[step]
            rows = table[keys].requires_grad_()
            loss = nn.functional.mse_loss(model(rows), targets)
            (loss * weigh(rank) / len(ranks)).backward()  # type: ignore[no-untyped-call]
            losses[rank].append(loss.detach())
            gradient = cast(Tensor, rows.grad) / weigh(rank)
            pushes[rank].append(torch.zeros_like(table).index_add_(0, keys.flatten(), gradient.flatten(0, 1)))
        optimizer.step()
    dense = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    return [
        {"dense": cast(Value, dense), "losses": losses[rank], "pushes": pushes[rank]}
        if rank in ranks
        else {"member": False}
        for rank in range(case.world_size)
    ]


def expected(case: Case) -> list[Values]:
    """Return the oracle's results."""
    return _train(case)


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether layers, losses and pushed gradients are those of one process."""
    assert isinstance(got, tuple)
    right = expected(case)
    for rank in members(case):
        if got[rank].get("problem") == "attached":
            return Verdict(
                False, f"The loss that rank {rank} returned still hangs on its graph: return loss.detach().", rank=rank
            )
        for number, (mine, wanted) in enumerate(_pairs(got[rank], right[rank], "losses")):
            if wrong := _apart(mine, wanted):
                return Verdict(False, f"Rank {rank}'s loss of step {number + 1} is {wrong}.", rank=rank)
        dense, good = cast(dict[str, Tensor], got[rank]["dense"]), cast(dict[str, Tensor], right[rank]["dense"])
        for name in good:
            if wrong := _apart(dense[name], good[name]):
                return Verdict(False, f"After the steps rank {rank}'s layer {name!r} has {wrong}.", rank=rank)
    num_steps = len(cast(list[Tensor], case.inputs[0]["keys"]))
    for rank in members(case):
        if len(cast(list[Tensor], got[rank]["pushes"])) != num_steps:
            count = len(cast(list[Tensor], got[rank]["pushes"]))
            return Verdict(False, f"Rank {rank} pushed {count} times in {num_steps} steps.", rank=rank)
    for step in range(num_steps):
        mine, wanted = (
            torch.stack([cast(list[Tensor], each[rank]["pushes"])[step] for rank in members(case)]).sum(0)
            for each in (got, right)
        )
        if wrong := _apart(mine, wanted):
            return Verdict(False, f"The gradients of rows that the servers add up in step {step + 1}: {wrong}.")
    return Verdict(True)


def _pairs(mine: Values, right: Values, name: str) -> list[tuple[Value, Tensor]]:
    return list(zip(cast(list[Value], mine[name]), cast(list[Tensor], right[name]), strict=True))


def _apart(mine: Value, wanted: Tensor) -> str:
    wrong = difference(mine, wanted, torch.full(wanted.shape, 1e-9, dtype=torch.float64))
    return "" if wrong is None else f"{wrong.got} where {wrong.expected} should be"


def _layers_are(weigh: Callable[[Case, int, int], float]) -> Callable[[Case, Got, Wire], bool]:
    """Return whether each rank's layers are those of other weights of the ranks' losses: weigh(case, rank, of)."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if (
            not isinstance(got, tuple)
            or judge(case, got, wire).passed
            or any("dense" not in got[r] for r in members(case))
        ):
            return False
        for rank in members(case):
            made = _train(case, lambda of, rank=rank: weigh(case, rank, of))[rank]  # type: ignore[misc]
            mine, other = cast(dict[str, Tensor], got[rank]["dense"]), cast(dict[str, Tensor], made["dense"])
            if any(_apart(mine[name], other[name]) for name in other):
                return False
        return True

    return seen


def _pushed_times(factor: Callable[[Case], float]) -> Callable[[Case, Got, Wire], bool]:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or "rows that the servers" not in judge(case, got, wire).message:
            return False
        right = expected(case)
        mine, wanted = (
            torch.stack([cast(list[Tensor], each[rank]["pushes"])[0] for rank in members(case)]).sum(0)
            for each in (got, right)
        )
        return bool(torch.allclose(mine, factor(case) * wanted))

    return seen


def _failed(got: Got, *words: str) -> bool:
    return isinstance(got, Failure) and all(word in f"{got.message} {got.detail}" for word in words)


def _loss_is_the_sum(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple) or judge(case, got, wire).passed:
        return False
    right, rank = expected(case), members(case)[0]
    if "losses" not in got[rank]:
        return False
    (mine, wanted), samples = (
        _pairs(got[rank], right[rank], "losses")[0],
        len(cast(list[Tensor], case.inputs[rank]["targets"])[0]),
    )
    return samples > 1 and not _apart(mine, samples * wanted)


def _count(case: Case) -> int:
    return len(members(case))


_TINY = 1e-30  # a rank that is left out

EXERCISE = judged(
    id="server_hybrid",
    functions=("hybrid_step",),
    driver=drive,
    oracle=expected,
    structure=structure,
    least=least_traffic,
    judge=judge,
    visible=(
        hybrid_case("2 workers, one step", 101, 2, 3, 1),
        hybrid_case("3 workers, 3 steps", 102, 3, 4, 3),
        hybrid_case("5 ranks, of which 3 train", 103, 3, 2, 2, group=[0, 2, 3]),
    ),
    hints=(
        "Whose samples are in a layer's gradient after backward? And how do the gradients of a row that two workers "
        "touched come together?",
        "rows = pull(...), made a leaf by requires_grad_(). After backward: all_reduce each layer's gradient and "
        "divide by the number of workers; optimizer.step(). Rows: servers add what all workers push, so push the "
        "gradient divided by the number of workers.",
        "for p in model.parameters(): if p.grad is not None: dist.all_reduce(p.grad, group=group); p.grad /= "
        "dist.get_world_size(group). Then push(keys.flatten(), rows.grad / dist.get_world_size(group)).",
    ),
    mistakes=(
        Mistake(
            "a parameter without a gradient",
            "A parameter that is frozen, or took no part in the loss, has no gradient: pass over it, "
            "if p.grad is not None.",
            lambda case, got, wire: _failed(got, "NoneType", "all_reduce", "tensor"),
            certain=True,
        ),
        Mistake(
            "rows without a gradient",
            "What pull returned is no leaf of autograd, so backward leaves no gradient on it: rows.requires_grad_() "
            "before the model is called.",
            lambda case, got, wire: _failed(got, "NoneType") or _failed(got, "does not require grad"),
            certain=True,
        ),
        Mistake(
            "all ranks counted in place of the group's",
            "The sum over the group was divided by the number of all ranks: dist.get_world_size(group).",
            lambda case, got, wire: (
                case.inputs[0].get("group") is not None
                and _layers_are(lambda case, rank, of: _count(case) / case.world_size)(case, got, wire)
            ),
        ),
        Mistake(
            "the sum of the squares",
            "The loss is the mean of the squared errors over the samples, not their sum.",
            _loss_is_the_sum,
        ),
        Mistake(
            "layers not averaged",
            "Every rank's layers went their own way: the gradients were not reduced over the workers before the step.",
            _layers_are(lambda case, rank, of: float(_count(case)) if of == rank else _TINY),
        ),
        Mistake(
            "sum instead of mean for the layers",
            "The layers took a step with the sum of the workers' gradients: divide by their number.",
            _layers_are(lambda case, rank, of: float(_count(case))),
        ),
        Mistake(
            "gradients of the step before are still there",
            "From the second step on, old gradients are in the sum: optimizer.zero_grad() before backward.",
            lambda case, got, wire: (
                (
                    isinstance(got, tuple)
                    and len(cast(list[Tensor], case.inputs[0]["keys"])) > 1
                    and "layer" in judge(case, got, wire).message
                )
                or (
                    isinstance(got, tuple)
                    and re.search(r"loss of step [2-9]", judge(case, got, wire).message) is not None
                )
            ),
        ),
        Mistake(
            "rows not divided",
            "The servers add up what all workers push, so what arrives is as many times too large as there are "
            "workers: push each worker's share, divided by their number.",
            _pushed_times(lambda case: float(_count(case))),
        ),
        Mistake(
            "rows divided twice",
            "The gradients of the rows are too small by the number of workers: divide once.",
            _pushed_times(lambda case: 1.0 / _count(case)),
        ),
        Mistake(
            "nothing was pushed",
            "The gradients of the rows never left this rank: push(keys, gradients), once a step.",
            lambda case, got, wire: isinstance(got, tuple) and "times in" in judge(case, got, wire).message,
        ),
        Mistake(
            "the loss hangs on its graph",
            "Return loss.detach(): a caller that keeps losses would keep all activations.",
            lambda case, got, wire: isinstance(got, tuple) and "graph" in judge(case, got, wire).message,
        ),
        Mistake(
            "all ranks in place of the group",
            "With a group the workers are its members only: group=group in every collective, and their number is "
            "dist.get_world_size(group).",
            lambda case, got, wire: case.inputs[0].get("group") is not None,
        ),
    ),
)
