"""The mended post: all gradients reach rank 0, and everybody learns the weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import near
from labkit.checks.declared import Mistake, Result, Way, declared
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.checks.traffic import NOT_WAITED, unread_messages
from labkit.checks.values import integer, number, tensor, tensors
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.posted_training.driver import drive
from labkit.words import plural


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


def one_by_one(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield a worker whose gradients came in no message of their own."""
    weight, wanted = tensor(case.inputs[0], "weight"), integer(case.inputs[0], "num_gradients")
    size = weight.numel() * weight.element_size()
    for worker in range(1, case.world_size):
        sent = sum(message.dst == 0 and message.bytes == size for message in wire.sent_by(worker))
        if sent < wanted:
            text = f"Worker {worker} has {plural(wanted, 'gradient')}, and rank 0 was sent {plural(sent, 'message')} of"
            yield Finding("gradients not sent one by one", f"{text} that size by it.", rank=worker)


def _as_if(total: Callable[[list[Tensor], int], Tensor]) -> dict[str, Way]:
    """Return what every rank has if this of all gradients, and of the number of workers, was applied."""
    return {"weight": lambda case, rank: _final(case, lambda gradients: total(gradients, case.world_size - 1))}


def _only_the_server_knows(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple):
        return False
    right = [near(values["weight"], _final(case, _sum)) for values in got if isinstance(values["weight"], Tensor)]
    return right[0] and not all(right)


def _without_rate(case: Case, rank: int) -> Tensor:
    weight, lr = tensor(case.inputs[0], "weight"), number(case.inputs[0], "lr")
    return weight + (_final(case, _sum) - weight) / lr


def _silent(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple):
        return False
    there = [isinstance(values["weight"], Tensor) for values in got]
    return there[0] and not any(there[1:])


def _changed(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and not all(values["kept"] for values in got)


def _stands_in_irecv(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a rank that waits does so for what it was to receive some time, not at once."""
    return isinstance(got, Failure) and any(wait.operation == "irecv" for wait in got.waits)


_WEIGHT = "{ranks}. Rank {rank} has {got}, expected {wanted}."
_KEPT = "The weight that was handed in was changed on rank {rank}; leave it as it is."

EXERCISE = declared(
    id="posted_training",
    functions=("posted_training",),
    driver=drive,
    oracle=expected,
    least=least_traffic,
    looks=(
        lambda case, got, wire: unread_messages(wire),
        Result("weight", _WEIGHT, same=lambda came, wanted: isinstance(came, Tensor) and near(came, wanted)),
        Result("kept", _KEPT),
        one_by_one,
    ),
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
    mistakes=(
        Mistake("nothing was served",
                "Every rank has its initial weight: rank 0 must apply what it receives, to the weight that is "
                "returned.", _as_if(lambda gradients, workers: torch.zeros_like(gradients[0]))),
        Mistake("only the last message counts",
                "Only one gradient is in the weight: apply each one before the next is received into the same buffer.",
                _as_if(lambda gradients, workers: gradients[-1])),
        Mistake("mean instead of sum", "A mean of gradients was applied; here each of them counts in full.",
                {"weight": (_as_if(lambda gradients, workers: torch.stack(gradients).mean(0))["weight"],
                            _as_if(lambda gradients, workers: torch.stack(gradients).mean(0) * workers)["weight"])}),
        Mistake("the learning rate left out", "The whole gradients were subtracted: take lr times each.",
                {"weight": _without_rate}),
        Mistake("the workers return nothing",
                "Every rank returns the final weight, the workers, too, once rank 0 has told them.", seen=_silent),
        Mistake("divided by the number of workers",
                "Each gradient is divided by the number of workers; here each of them counts in full.",
                _as_if(lambda gradients, workers: _sum(gradients) / workers)),
        Mistake("uphill", "The gradients were added; subtract lr times each.",
                _as_if(lambda gradients, workers: -_sum(gradients))),
        Mistake("the others were not told",
                "Rank 0 has the right weight and the workers do not: tell them, with a broadcast for example.",
                seen=_only_the_server_knows),
        Mistake("works on the weight that was handed in",
                "Make a copy first, weight = weight.clone(): the caller still needs the original.", seen=_changed),
        Mistake(NOT_WAITED,
                "What irecv was given holds the message only after wait(): call it on what each irecv returns, before "
                "you read the buffer and before the next irecv into it. Rank 0 receives num_gradients messages from "
                "each worker, no more.", seen=_stands_in_irecv),
        Mistake("received as something else",
                "What is received into must have the dtype and the number of elements of what was sent: "
                "torch.empty_like(weight) has them, torch.empty(weight.shape) is always float32.",
                says=("Both ends of a message need",),
                seen=lambda case, got, wire: bool(wire.problems_of("size_mismatch"))),
        Mistake("messages that nobody takes",
                "Some rank waits for a message that never comes, or sends one that nobody receives: rank 0 must "
                "receive num_gradients messages from each of the other ranks, and an isend counts once you have "
                "waited for it.", seen=lambda case, got, wire: isinstance(got, Failure) or bool(wire.problems)),
        Mistake("gradients not sent one by one",
                "The sum is right, but it did not come from messages to a server: send each gradient to rank 0 as its "
                "own message."),
    ),
)  # fmt: skip
