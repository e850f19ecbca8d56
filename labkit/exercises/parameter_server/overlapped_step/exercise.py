"""overlapped_step: a gradient in pieces, all of them on their way before the first answer is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import difference
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import Each, OneOf
from labkit.checks.values import integer, listed, tensors
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.overlapped_step.driver import LR, drive

_TOGETHER_S = 0.020
"""Pushes of one worker that come within this of each other were under way together; a round trip takes twice that."""


def pieces_case(name: str, seed: int, num_workers: int, num_servers: int, sizes: list[int], worker: int = 0) -> Case:
    """Return a case: workers, one the learner's, push pieces of these sizes, dealt out to servers in turn."""
    generator = draws.generator(seed)

    def drawn() -> list[Value]:
        return [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]

    gradients: list[Value] = [drawn() for _ in range(num_workers)]
    inputs: Values = {
        "num_servers": num_servers,
        "worker": worker,
        "weights": drawn(),
        "gradients": gradients,
    }
    return Case(name, 1, (inputs,))


def right_weights(case: Case) -> list[Tensor]:
    """Return each piece of the weights after the step."""
    workers = cast(list[list[Tensor]], listed(case.inputs[0], "gradients"))
    return [
        weight - LR * torch.stack(each).mean(0)
        for weight, each in zip(tensors(case.inputs[0], "weights"), zip(*workers, strict=True), strict=True)
    ]


def expected(case: Case) -> list[Values]:
    """Return what comes of the step (the oracle)."""
    right = right_weights(case)
    return [{"weights": right, "came": [[0.0] for _ in right], "pulls": 0}]


def structure(case: Case) -> list[Any]:
    """Return what comes: the weights, or in words what else; when pushes came; how many pulls there were."""
    right = right_weights(case)
    mine = OneOf((right, Each(OneOf((*right, str))), str))
    return [{"weights": mine, "came": Each(Each(float)), "pulls": int}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield wrong weights, pushes that wait for answers, and pulls that nobody needs."""
    right, mine = right_weights(case), got[0]["weights"]
    if not isinstance(mine, list) or not all(isinstance(each, Tensor) for each in mine):
        what = mine if isinstance(mine, str) else next(each for each in cast(Any, mine) if not isinstance(each, Tensor))
        yield Finding(_FORM, f"overlapped_step returned {what}; expected a list of {len(right)} tensors.")
        return
    if len(mine) != len(right):
        yield Finding(_LOST, f"overlapped_step returned {len(mine)} pieces; there are {len(right)}.")
        return
    for number, (came, wanted) in enumerate(zip(cast(list[Tensor], mine), right, strict=True)):
        wrong = difference(came, wanted, torch.full(wanted.shape, 1e-9, dtype=torch.float64))
        if wrong is not None:
            others = [each for each in right if each.shape == came.shape and torch.allclose(each, came)]
            said = f"Piece {number}: {wrong.got}, expected {wrong.expected}."
            yield Finding(_ORDER if others else "", said, wrong.expected, wrong.got)
    came_at = listed(got[0], "came")
    if len(came_at) != len(right) or any(len(each) != 1 for each in came_at):
        pushes = sum(map(len, came_at))
        yield Finding(_LOST, f"{pushes} pushes for {len(right)} pieces; each asks for its gradient once.")
        return
    times = sorted(when for piece in came_at for when in piece)
    if times[-1] - times[0] >= _TOGETHER_S:
        spread = 1e3 * (times[-1] - times[0])
        said = f"The last push arrived {spread:.0f} ms after the first; a message is 20 ms under way."
        yield Finding(_WAITS, said)
    if pulls := integer(got[0], "pulls"):
        yield Finding(_PULLS, f"Servers were asked for their weights {pulls} times.")


_FORM, _LOST, _ORDER = "no tensors", "a piece is lost", "pieces out of order"
_WAITS, _PULLS = "waits for each answer", "pulls what it was told"

EXERCISE = declared(
    id="overlapped_step",
    functions=("overlapped_step",),
    driver=drive,
    oracle=expected,
    structure=structure,
    looks=(find,),
    visible=(
        pieces_case("2 workers, 3 pieces on one server", 61, 2, 1, [4, 4, 4]),
        pieces_case("3 workers, 6 pieces on 2 servers", 62, 3, 2, [3, 3, 3, 3, 3, 2], worker=2),
        pieces_case("one piece", 63, 2, 1, [5]),
    ),
    distributed=False,
    hints=(
        "When may piece 1 leave, and what does your link do in the other direction in the meantime?",
        "piece.rpc_async().push(...) returns a future at once. Make all of them before you wait for the first.",
        "futures = [piece.rpc_async().push(worker, version, gradient) for ...]; return [future.wait()[1] for ...]",
    ),
    mistakes=(
        Mistake(_FORM,
                "An answer is a pair (version, weights), and comes in a future: wait for it, and keep the weights."),
        Mistake(_LOST, "Every piece has a server, and every answer belongs in the list."),
        Mistake(_ORDER, "The list has the weights in the order of the pieces, whichever answer came first."),
        Mistake(_WAITS,
                "Push all pieces first, and keep the futures. Wait only after the last push: while you wait for one "
                "answer, nothing else is in flight."),
        Mistake(_PULLS, "The answer to a push holds the new weights already. A pull sends them once more."),
    ),
)  # fmt: skip
