"""The mended post: all gradients reach rank 0, and everybody learns the weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Failure, Value, Values
from labkit.checks.compare import difference
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.checks.values import integer, number, tensor, tensors
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.posted_training.driver import drive
from labkit.words import are_wrong, plural


def post_case(name: str, seed: int, world_size: int, size: int, num_gradients: int, lr: float) -> Case:
    """Return a case of posted_training: rank 0 and workers with that many gradients each, float64."""
    weight = torch.randn(size, generator=draws.generator(seed), dtype=torch.float64)
    inputs: list[dict[str, Value]] = []
    for rank in range(world_size):
        draw = draws.generator(seed, "rank", rank)
        gradients: list[Value] = [
            torch.randn(size, generator=draw, dtype=torch.float64) for _ in range(num_gradients if rank else 0)
        ]
        inputs.append({"weight": weight, "gradients": gradients, "num_gradients": num_gradients, "lr": lr})
    return Case(name, world_size, tuple(inputs))


def _final(case: Case, total: Callable[[list[Tensor]], Tensor]) -> Tensor:
    first = case.inputs[0]
    weight, lr = tensor(first, "weight"), number(first, "lr")
    gradients = [each for inputs in case.inputs for each in tensors(inputs, "gradients")]
    return weight - lr * total(gradients) if gradients else weight.clone()


def _sum(gradients: list[Tensor]) -> Tensor:
    return torch.stack(gradients).sum(0)


def expected(case: Case) -> list[Values]:
    """Return the weight minus lr times the sum of all gradients, for every rank (the oracle)."""
    return [{"weight": _final(case, _sum), "kept": True} for _ in case.inputs]


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: every gradient to rank 0, and the weight back."""
    size = MOST_PACKED * tensor(case.inputs[0], "weight").numel()
    counts = {rank: len(tensors(inputs, "gradients")) for rank, inputs in enumerate(case.inputs) if rank}
    workers = {rank: Bytes(size * count, size) for rank, count in counts.items() if sum(counts.values())}
    return {0: Bytes(size, size * sum(counts.values())), **workers} if workers else {}


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield ranks without the weight, a weight that was changed, and gradients that came in no message of their own."""
    right = _final(case, _sum)
    allowed = torch.full(right.shape, 1e-9, dtype=torch.float64)
    wrong = {rank: each for rank, values in enumerate(got) if (each := difference(values["weight"], right, allowed))}
    if wrong:
        rank, first = next(iter(wrong.items()))
        said = f"{are_wrong(wrong, case.world_size)}. Rank {rank} has {first.got}, expected {first.expected}."
        yield Finding(_named(case, got, 0 in wrong, wire), said, first.expected, first.got, rank)
    for rank, values in enumerate(got):
        if not values["kept"]:
            said = f"The weight that was handed in was changed on rank {rank}; leave it as it is."
            yield Finding("works on the weight that was handed in", said, rank=rank)
    size, wanted = right.numel() * right.element_size(), integer(case.inputs[0], "num_gradients")
    for worker in range(1, case.world_size):
        sent = sum(message.dst == 0 and message.bytes == size for message in wire.sent_by(worker))
        if sent < wanted:
            yield Finding(
                "gradients not sent one by one",
                f"Worker {worker} has {plural(wanted, 'gradient')}, and rank 0 was sent {plural(sent, 'message')} of "
                "that size by it.",
                rank=worker,
            )


def _named(case: Case, got: tuple[Values, ...], server_is_wrong: bool, wire: Wire) -> str:
    """Return the mistake with which all ranks would have what they have."""
    ways: list[tuple[str, Callable[[list[Tensor]], Tensor]]] = [
        ("nothing was served", lambda gradients: torch.zeros_like(gradients[0])),
        ("only the last message counts", lambda gradients: gradients[-1]),
        ("mean instead of sum", lambda gradients: torch.stack(gradients).mean(0)),
        ("divided by the number of workers", lambda gradients: _sum(gradients) / (case.world_size - 1)),
        ("uphill", lambda gradients: -_sum(gradients)),
    ]
    came = [tensor(values, "weight") for values in got]
    made: list[tuple[str, Callable[[], list[Tensor]]]] = [
        (name, lambda total=total: [_final(case, total)] * len(came))  # type: ignore[misc]
        for name, total in ways
    ]
    name = as_if(came, made[:1], _same) or ("" if server_is_wrong else "the others were not told")
    name = name or as_if(came, made, _same)
    if not name and any(not values["kept"] for values in got):
        return "works on the weight that was handed in"
    return name or ("messages that nobody takes" if wire.problems else "")


def _same(came: list[Tensor], made: list[Tensor]) -> bool:
    return all(torch.allclose(one, other, rtol=0, atol=1e-9) for one, other in zip(came, made, strict=True))


def blame(case: Case, failure: Failure, wire: Wire) -> Iterator[str]:
    """Yield that somebody waits, or sends, in vain."""
    if failure.kind in ("deadlock", "timeout", "died", "exception") or wire.problems:
        yield "messages that nobody takes"


EXERCISE = Exercise(
    id="posted_training",
    functions=("posted_training",),
    driver=drive,
    oracle=expected,
    least=least_traffic,
    find=find,
    blame=blame,
    visible=(
        post_case("a server and 3 workers, 4 gradients each", 1, 4, 1, 4, 0.1),
        post_case("a server and one worker", 2, 2, 5, 3, 0.5),
        post_case("a server and 2 workers, one gradient each", 3, 3, 4, 1, 0.25),
    ),
    hints=(
        "How many messages does rank 0 get, and from whom? Count them before you write the loop.",
        "Rank 0: a buffer like the weight; for each gradient and each worker, recv into it, and take lr times it off. "
        "Workers: send. In the end a broadcast from rank 0 tells everybody.",
        "for _ in range(num_gradients): for worker in range(1, dist.get_world_size()): dist.recv(buffer, src=worker); "
        "weight -= lr * buffer. Then, on every rank, dist.broadcast(weight, src=0).",
    ),
    mistakes={
        "nothing was served": (
            "Every rank has its initial weight: rank 0 must apply what it receives, to the weight that is returned."
        ),
        "the others were not told": "Rank 0 has the right weight and the workers do not: tell them, with a broadcast "
        "for example.",
        "only the last message counts": "Only one gradient is in the weight: apply each one before the next is "
        "received into the same buffer.",
        "mean instead of sum": "The mean over all gradients was applied; here each of them counts in full.",
        "divided by the number of workers": "Each gradient is divided by the number of workers; here each of them "
        "counts in full.",
        "uphill": "The gradients were added; subtract lr times each.",
        "works on the weight that was handed in": (
            "Make a copy first, weight = weight.clone(): the caller still needs the original."
        ),
        "messages that nobody takes": (
            "Some rank waits for a message that never comes, or sends one that nobody receives: rank 0 must receive "
            "num_gradients messages from each of the other ranks, and an isend counts once you have waited for it."
        ),
        "gradients not sent one by one": (
            "The sum is right, but it did not come from messages to a server: send each gradient to rank 0 as its own "
            "message."
        ),
    },
)
