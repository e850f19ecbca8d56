"""The means that a communication hook must give for buckets of our own, and what is taken for them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.case import Case, Values
from labkit.checks.compare import near, wrong_value
from labkit.checks.finding import Finding
from labkit.checks.values import integer, integers, listed, record, records, tensors, text
from labkit.exercises.gradient_compression.unpacked import WINDOW, unpacked

ORDER, OWN_WHOLE, MIXED, CAST = (
    "another order on each rank", "its own gradient for its packet", "parts of several ranks mixed", "cast on its way",
)  # fmt: skip
_ANY = "a wrong mean"


def _buffers(case: Case, step: int, bucket: int) -> list[tuple[Values, Tensor]]:
    """Return compressor and gradient of each member for one bucket."""
    members = [case.inputs[rank] for rank in integers(case.about, "ranks")]
    return [(record(inputs, "compressor"), listed(inputs, "steps")[step][bucket]) for inputs in members]


def mean_of(case: Case, step: int, bucket: int) -> Tensor:
    """Return what every member must get for a bucket."""
    pairs = _buffers(case, step, bucket)
    return torch.stack([unpacked(about, gradient / len(pairs)) for about, gradient in pairs]).sum(0)


def wrong_means(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    """Yield what is wrong with means, in the order of time: another value, other bits on ranks, a changed buffer."""
    for step in range(len(listed(case.inputs[0], "steps"))):
        for place, rank in enumerate(integers(case.about, "ranks")):
            came = records(got[rank], "steps")[step]
            for bucket, mean in enumerate(tensors(came, "means")):
                right = mean_of(case, step, bucket)
                if not near(mean, right):
                    what = f"Step {step}, bucket {bucket}, rank {rank}: the mean"
                    yield wrong_value(_named(case, step, bucket, place, mean), what, mean, right, rank=rank)
                yield from _other_bits(case, got, step, bucket, rank)
            if came["changed"]:
                message = f"Step {step}, rank {rank}: the hook changed a bucket's buffer."
                yield Finding("the buffer was changed", message, rank=rank)


def _other_bits(case: Case, got: tuple[Values, ...], step: int, bucket: int, rank: int) -> Iterator[Finding]:
    first = integers(case.about, "ranks")[0]
    mean, other = (tensors(records(got[each], "steps")[step], "means")[bucket] for each in (rank, first))
    if near(mean, other) and not torch.equal(mean, other):
        apart = float((mean - other).abs().max())
        message = f"Step {step}, bucket {bucket}: the means of ranks {first} and {rank} differ by {apart:.1e}."
        yield Finding(ORDER, message, "the same bits on every rank", f"{apart:.1e} apart", rank=rank)


def _named(case: Case, step: int, bucket: int, place: int, mean: Tensor) -> str:
    pairs = _buffers(case, step, bucket)
    count = len(pairs)
    about, own = pairs[place]
    whole = torch.stack([unpacked(about, gradient) for about, gradient in pairs]).sum(0)
    windows = [unpacked(about, gradient) for about, gradient in pairs if text(about, "kind") == WINDOW]
    ways = [
        ("sum instead of mean", lambda: whole),
        ("divided twice", lambda: mean_of(case, step, bucket) / count),
        ("divided after compressing", lambda: whole / count),
        ("only my own packet", lambda: unpacked(about, own / count)),
        ("only my own packet", lambda: unpacked(about, own)),
        ("own packet left out", lambda: mean_of(case, step, bucket) - unpacked(about, own / count)),
        *[("one buffer for all ranks", lambda window=window: window) for window in windows],
        (OWN_WHOLE, lambda: mean_of(case, step, bucket) - unpacked(about, own / count) + own / count),
        (MIXED, lambda: torch.stack([_moved(about, other, each / count) for other, each in pairs]).sum(0)),
        (MIXED, lambda: torch.stack([_moved(other, about, own / count) for other, _ in pairs]).sum(0)),
    ]
    cast = torch.allclose(mean, mean_of(case, step, bucket), rtol=1e-6, atol=1e-6)
    return as_if(mean, ways, near) or (CAST if cast else _ANY)


def _moved(to: Values, of: Values, gradient: Tensor) -> Tensor:
    """Return what is unpacked of a packet with the entries of one rank's window in the place of another's."""
    if text(of, "kind") != WINDOW:
        raise ValueError("only windows have places")
    starts = [min(integer(each, "start"), gradient.numel() - integer(of, "length")) for each in (of, to)]
    left, length = torch.zeros_like(gradient), integer(of, "length")
    left[starts[1] : starts[1] + length] = gradient[starts[0] : starts[0] + length]
    return left
