"""PowerSGD: tensors averaged together, and two thin matrices for each gradient of a bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.blame import by_signs
from labkit.checks.case import Case, Failure, Value, Values
from labkit.checks.compare import near, wrong_value
from labkit.checks.draws import normal, part_of
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import WRONG_DTYPE, WRONG_SHAPE, Each
from labkit.checks.values import integer, integers, listed, records, tensors
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression import packets
from labkit.exercises.gradient_compression import together as average
from labkit.exercises.gradient_compression.power_sgd.driver import drive
from labkit.exercises.gradient_compression.together import NOT_FLAT, WHOLE_WORLD, together_case

_NEAR_BEST = 1.05
_ROUNDING = 1e-7
_NO_PRODUCT, _NO_MATRIX, _NO_Q = "no product", "a gradient that is not a matrix", "no Q for each matrix"


def power_case(
    name: str,
    seed: int,
    world_size: int,
    shapes: Sequence[Sequence[int]],
    rank: int,
    *,
    true_rank: int,
    noise: float = 0.0,
    calls: int = 1,
) -> Case:
    """Return a case in which the mean of the ranks' gradients has rank `true_rank`, but for noise.

    Args:
        name: What is special about it.
        seed: Draws the gradients.
        world_size: Ranks.
        shapes: Of the bucket's gradients; each makes a matrix of the first dimension by all others.
        rank: Columns of the thin matrices, at most.
        true_rank: Rank of the means without noise. No less than `rank`, for where P = M Q lacks a column, Gram and
            Schmidt divide zero by zero, and orthonormal columns are found by other ways only.
        noise: Of the means, relative to their own entries.
        calls: How often the same bucket comes.
    """
    means: list[Tensor] = []
    buckets: list[list[Tensor]] = [[] for _ in range(world_size)]
    for place, shape in enumerate(shapes):
        mean, gradients = _apart(seed + 1000 * place, world_size, shape, true_rank, noise)
        means.append(mean)
        for bucket, gradient in zip(buckets, gradients, strict=True):
            bucket.append(gradient)
    inputs: list[Values] = [{"rank": rank, "buckets": [[*bucket]] * calls} for bucket in buckets]
    return Case(name, world_size, tuple(inputs), {"means": [*means]})


def _apart(
    seed: int, world_size: int, shape: Sequence[int], true_rank: int, noise: float
) -> tuple[Tensor, list[Tensor]]:
    """Return a mean of this rank, but for noise, and gradients of full rank that have it."""
    rows, columns = shape[0], int(torch.Size(shape[1:]).numel())
    mean = normal(seed, rows, true_rank, dtype=torch.float64) @ normal(
        seed + 1, true_rank, columns, dtype=torch.float64
    )
    mean = mean + noise * normal(seed + 2, rows, columns, dtype=torch.float64)
    apart = [normal(part_of(seed, "rank", each), rows, columns, dtype=torch.float64) for each in range(world_size)]
    middle = torch.stack(apart).mean(0)
    return mean.view(*shape), [(mean + each - middle).view(*shape) for each in apart]


def expected(case: Case) -> list[Values]:
    """Return the means, or the best that so thin matrices can do for them, by their singular values (the oracle)."""
    if "ranks" in case.about:
        return average.together(case)
    return [{"backs": [_best(mean, integer(case.inputs[0], "rank")) for mean in _means(case)]}] * case.world_size


def _best(mean: Tensor, columns: int) -> Tensor:
    u, s, v = torch.linalg.svd(mean.reshape(len(mean), -1), full_matrices=False)
    best: Tensor = (u[:, :columns] * s[:columns]) @ v[:columns]
    return best.view(mean.shape)


def _means(case: Case) -> list[Tensor]:
    return tensors(case.about, "means")


def structure(case: Case) -> list[Any]:
    """Return what results look like: for each call the parts of each gradient's packet and what was unpacked."""
    if "ranks" in case.about:
        return average.together(case)
    means = _means(case)
    call = {"parts": [Each(Tensor)] * len(means), "backs": means, "averaged": Each(int), "changed": bool}
    return [{"came": [call] * len(listed(inputs, "buckets"))} for inputs in case.inputs]


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: every tensor of average_together; of PowerSGD what is no matrix, and one thin factor."""
    if "ranks" in case.about:
        ranks = integers(case.about, "ranks")
        return both_ways(ranks, sum(tensor.numel() for tensor in tensors(case.inputs[ranks[0]], "tensors")))
    columns, calls = integer(case.inputs[0], "rank"), len(listed(case.inputs[0], "buckets"))
    kept = [mean.numel() if mean.dim() < 2 else min(len(mean), mean[0].numel(), columns) for mean in _means(case)]
    return both_ways(range(case.world_size), calls * sum(kept))


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: packets, then how they were averaged, then what was lost."""
    if "ranks" in case.about:
        yield from average.wrong_together(case, got, wire)
        return
    came = [records(values, "came") for values in got]
    for rank, results in enumerate(came):
        for number, result in enumerate(results):
            for found in _wrong_packets(case, result, came[0][number], f"Call {number}, rank {rank}"):
                yield replace(found, rank=rank)
    for rank, results in enumerate(came):
        for number, result in enumerate(results):
            for found in _wrong_averages(case, integers(result, "averaged"), f"Call {number}, rank {rank}"):
                yield replace(found, rank=rank)
    yield from _too_much_lost(case, came[0])


def _wrong_packets(case: Case, result: Values, of_first: Values, where: str) -> Iterator[Finding]:
    """Yield what is wrong with the packets of one call; `of_first` is what rank 0 has of it."""
    if "problem" in result:
        yield Finding("no packets", f"{where}: {result['problem']}.")
    if result["changed"]:
        yield Finding("gradient changed", f"{where}: compress changed a gradient.")
    for place, mean in enumerate(_means(case)):
        parts, first = listed(result, "parts")[place], listed(of_first, "parts")[place]
        yield from _wrong_parts(case, mean, parts, first, f"{where}, gradient {place} of shape {tuple(mean.shape)}")


def _sizes(case: Case, mean: Tensor) -> tuple[int, int, int]:
    """Return n, m and the columns that P and Q have."""
    rows, others = len(mean), mean.numel() // len(mean)
    return rows, others, min(integer(case.inputs[0], "rank"), rows, others)


def _wrong_parts(case: Case, mean: Tensor, parts: list[Tensor], first: list[Tensor], what: str) -> Iterator[Finding]:
    """Yield what is wrong with P and Q of one gradient; `first` are those of rank 0."""
    rows, others, columns = _sizes(case, mean)
    shapes, wanted = [tuple(part.shape) for part in parts], [(rows, columns), (others, columns)]
    if shapes != wanted:
        wider = len(shapes) == 2 and [shape[:1] for shape in shapes] == [(rows,), (others,)]
        more = wider and columns < integer(case.inputs[0], "rank")
        name = "more columns than the matrix has" if more else "not two thin matrices"
        yield Finding(name, f"{what}: the parts have the shapes {shapes}.", f"{wanted}", f"{shapes}")
    if any(part.dtype != mean.dtype for part in parts):
        yield Finding("not two thin matrices", f"{what}: the parts have the dtypes {[part.dtype for part in parts]}.")
    for part, other, name in zip(parts, first, ("P", "Q"), strict=True):
        if not near(part, other):
            yield Finding(f"{name} is not averaged", f"{what}: {name} is not the same as on rank 0.")
    if not near(parts[0].T @ parts[0], torch.eye(columns, dtype=torch.float64), 1e-8):
        yield Finding("P is not orthonormal", f"{what}: the columns of P are not orthonormal.")


def _wrong_averages(case: Case, averaged: list[int], where: str) -> Iterator[Finding]:
    """Yield what is wrong with the calls of average in one call of compress: their numbers, or how many there were."""
    sizes = [_sizes(case, mean) for mean in _means(case)]
    most = sum((rows + others) * columns for rows, others, columns in sizes)
    if sum(averaged) > most:
        message = f"{where}: average was called with {sum(averaged)} numbers; all P's and Q's together have {most}."
        yield Finding("the whole matrix is averaged", message, f"at most {most}", f"{sum(averaged)}")
    if len(averaged) == 2 or (case.world_size == 1 and len(averaged) < 2):  # which one is missing, more ranks show
        return
    name = "one average for each matrix" if len(averaged) > 2 else "average is not called"
    of = f"{len(sizes)} gradients" if len(sizes) > 1 else "one gradient"
    often = {0: "never called", 1: "called once"}.get(len(averaged), f"called {len(averaged)} times")
    yield Finding(name, f"{where}: for {of}, average was {often}.", "2 calls", f"{len(averaged)}")


def _too_much_lost(case: Case, came: list[dict[str, Value]]) -> Iterator[Finding]:
    """Yield gradients of which more is lost than the best matrices of this rank lose; `came` are rank 0's calls."""
    for place, (mean, last) in enumerate(zip(_means(case), tensors(came[-1], "backs"), strict=True)):
        what, length = f"Gradient {place} of shape {tuple(mean.shape)}", float(mean.norm())
        off, least = float((last - mean).norm()), float((_best(mean, integer(case.inputs[0], "rank")) - mean).norm())
        if least <= _ROUNDING * length:
            if not near(last, mean, _ROUNDING):
                message = f"{what}: its mean has so low a rank that it should come back unchanged; what came"
                yield wrong_value(_named(case, last, mean), message, last, mean)
        elif off > _NEAR_BEST * least:
            yield Finding(
                "starts over in every call",
                f"{what}: after {len(came)} calls with the same bucket, {off:.3g} of its length {length:.3g} is lost; "
                f"the best matrices of this rank lose {least:.3g}.",
                f"at most {_NEAR_BEST * least:.3g}",
                f"{off:.3g}",
            )


def _named(case: Case, last: Tensor, mean: Tensor) -> str:
    ways = [
        ("nothing comes back", lambda: torch.zeros_like(mean)),
        ("the sum came back", lambda: mean * case.world_size),
    ]
    return as_if(last, ways, lambda came, wanted: near(came, wanted, _ROUNDING)) or "not the mean"


def blame(case: Case, failure: Failure, wire: Wire) -> Iterator[str]:
    """Yield what the message points to; of shapes that make no product, what the case and the line tell."""
    for name in by_signs(SIGNS)(case, failure, wire):
        if name != _NO_PRODUCT:
            yield name
        elif "in decompress" in failure.detail and "mat1" in failure.message:
            yield "no transpose"
        else:
            matrices = "means" not in case.about or all(mean.dim() == 2 for mean in _means(case))
            yield _NO_Q if matrices else _NO_MATRIX


MISTAKES = {
    "average of one tensor": "average takes a list and returns a list: give it all P's at once, and then all Q's.",
    "a list is no gradient": "compress gets the list of all gradients of a bucket, and returns a list with a packet "
    "for each.",
    "Q and R": "torch.linalg.qr returns two tensors, Q and R: the columns are in [0].",
    "a Q of another dtype": "The first Q must have the gradient's dtype, float64 in these cases: "
    "torch.randn(...).to(gradient).",
    **average.MISTAKES,
    "no transpose": "P is (n, r) and Q is (m, r): their product is P Q^T, p @ q.T.",
    _NO_Q: (
        "A matrix was multiplied by a Q that does not fit. Every gradient has its own Q, of shape (m, r), in the "
        "order of the gradients: self.qs is a list."
    ),
    _NO_MATRIX: "A gradient with one dimension, or more than two: make it a matrix first, "
    "gradient.reshape(len(gradient), -1), and draw its Q for that.",
    "no packets": "compress returns a list: for each gradient a Packet((p, q), gradient.shape, gradient.dtype).",
    "gradient changed": packets.MISTAKES["gradient changed"],
    WRONG_SHAPE: (
        "The result has the shape of the input: .view_as(tensor) for a mean, .view(packet.shape) for a gradient."
    ),
    WRONG_DTYPE: packets.MISTAKES[WRONG_DTYPE],
    "more columns than the matrix has": "A matrix of n x m has at most min(n, m) columns worth sending, and a bias "
    "is one of n x 1: its Q has min(self.rank, n, m) columns.",
    "not two thin matrices": "The parts are P of (n, r) and Q of (m, r), and nothing else.",
    "P is not averaged": (
        "P differs between ranks: orthonormalise what self.average returns (it changes nothing in place), and draw "
        "the first Q from the seed, the same on all ranks."
    ),
    "Q is not averaged": "Q differs between ranks: average matrix.T @ P as well, and use what self.average returns.",
    "P is not orthonormal": "Make P's columns orthonormal after averaging: torch.linalg.qr(p)[0]. The mean of "
    "orthonormal matrices is not orthonormal.",
    "the sum came back": "The sum of the matrices came back.",
    "nothing comes back": "Zeros came back: the first Q must be drawn at random, because zero stays zero.",
    "the whole matrix is averaged": (
        "average sends what it is given: pass P and Q, not the matrix, or nothing is saved."
    ),
    "average is not called": (
        "compress reaches the other ranks only through self.average, with one call for the P's and one for the Q's. "
        "The hook passes average_together."
    ),
    "not the mean": "What comes back is not the mean: Q = M^T P needs the same orthonormal P on all ranks, and P = M "
    "Q the same first Q. Draw that from self.seed, by a torch.Generator.",
    "starts over in every call": (
        "Every call starts from a new Q: keep the Q's from the last call. One step of the power method is not enough; "
        "one more in each call is."
    ),
    "one average for each matrix": (
        "Each matrix was averaged separately, and each average is an all-reduce with its latency. Collect all P's in "
        "a list and average that; then all Q's."
    ),
}

SIGNS = {
    "average of one tensor": ("was given one tensor",),
    "a list is no gradient": ("'list' object has no attribute",),
    "Q and R": ("linalg_qr",),
    "a Q of another dtype": ("to have the same dtype", "expected scalar type"),
    NOT_FLAT: average.SIGNS[NOT_FLAT],
    _NO_PRODUCT: (
        "must be 2-D",
        "must be matrices",
        "expected to be 2-D",
        "only supported on matrices",
        "mat1",
        "shapes cannot be multiplied",
        "tensors with 2 dimensions",
        "size mismatch",
        "must match the size of tensor",
    ),
    _NO_MATRIX: (
        "Dimension out of range",
        "not enough values to unpack",
        "tuple index out of range",
        "too many values to unpack",
    ),
    WHOLE_WORLD: average.SIGNS[WHOLE_WORLD],
}

EXERCISE = Exercise(
    id="power_sgd",
    functions=("average_together", "PowerSGD"),
    given=("Packet",),
    driver=drive,
    oracle=expected,
    find=find,
    least=least_traffic,
    blame=blame,
    mistakes=MISTAKES,
    certain=frozenset(SIGNS),
    structure=structure,
    visible=(
        together_case("3 ranks average three tensors in one all-reduce", 675, 3, [(4, 3), (7,), (2, 2, 2)]),
        together_case("4 ranks, of which 0, 2 and 3 take part", 676, 4, [(5, 2), (3,)], group=(0, 2, 3)),
        power_case("one rank, two matrices of rank 2", 671, 1, [(9, 7), (5, 8)], 2, true_rank=2),
        power_case("3 ranks, two matrices, means of rank 2", 672, 3, [(8, 11), (6, 5)], 2, true_rank=2),
        power_case("3 ranks, a convolution, a bias and a matrix", 673, 3, [(6, 2, 3, 3), (6,), (4, 6)], 3, true_rank=3),
        power_case("2 ranks, noise, eight calls", 674, 2, [(20, 16), (20,)], 2, true_rank=2, noise=0.4, calls=8),
    ),
    hints=(
        "What must be averaged over all ranks before P can be orthonormalised? And for how many matrices can one "
        "all-reduce do that? Write the three steps for a list of matrices, not for one.",
        "average_together: torch.cat of the flattened tensors, one all_reduce, divide, split by their numel(). "
        "compress: matrices = [gradient.reshape(len(gradient), -1) for ...], a Q of (m, min(rank, n, m)) for each. One "
        "average of all matrix @ q, each made orthonormal by qr; one average of all matrix.T @ p, kept in self.qs.",
        "ps = [torch.linalg.qr(p)[0] for p in self.average([matrix @ q for matrix, q in zip(matrices, self.qs)])]; "
        "self.qs = self.average([matrix.T @ p for matrix, p in zip(matrices, ps)]); then a "
        "Packet((p, q), gradient.shape, gradient.dtype) for each.",
    ),
)
