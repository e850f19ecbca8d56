"""PowerSGD: tensors averaged together, and two thin matrices for each gradient of a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.findings import (
    Finding,
    judging,
    mistakes,
    near,
    normal,
    raising,
    unlike,
    wrong_value,
)
from labkit.exercises.gradient_compression.packets import COMMON
from labkit.exercises.gradient_compression.power_sgd.driver import drive
from labkit.exercises.gradient_compression.together import (
    NOT_FLAT,
    TOGETHER,
    WHOLE_WORLD,
    together,
    together_case,
    wrong_together,
)

_NEAR_BEST = 1.05
_ROUNDING = 1e-7


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
    inputs: list[Values] = [{"rank": rank, "buckets": cast(Value, [bucket] * calls)} for bucket in buckets]
    return Case(name, world_size, tuple(inputs), {"means": cast(Value, means)})


def _apart(
    seed: int, world_size: int, shape: Sequence[int], true_rank: int, noise: float
) -> tuple[Tensor, list[Tensor]]:
    """Return a mean of this rank, but for noise, and gradients of full rank that have it."""
    rows, columns = shape[0], int(torch.Size(shape[1:]).numel())
    mean = normal(seed, rows, true_rank, dtype=torch.float64) @ normal(
        seed + 1, true_rank, columns, dtype=torch.float64
    )
    mean = mean + noise * normal(seed + 2, rows, columns, dtype=torch.float64)
    apart = [normal(seed + 3 + each, rows, columns, dtype=torch.float64) for each in range(world_size)]
    middle = torch.stack(apart).mean(0)
    return mean.view(*shape), [(mean + each - middle).view(*shape) for each in apart]


def expected(case: Case) -> list[Values]:
    """Return the means, or the best that so thin matrices can do for them, by their singular values (the oracle)."""
    if "ranks" in case.about:
        return together(case)
    columns = cast(int, case.inputs[0]["rank"])
    backs: list[Value] = []
    for mean in cast(list[Tensor], case.about["means"]):
        u, s, v = torch.linalg.svd(mean.reshape(len(mean), -1), full_matrices=False)
        backs.append(((u[:, :columns] * s[:columns]) @ v[:columns]).view(mean.shape))
    return [{"backs": backs}] * case.world_size


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong."""
    return wrong_together(case, got, wire) if "ranks" in case.about else _wrong_power(case, got)


def _wrong_power(case: Case, got: tuple[Values, ...]) -> Finding | None:
    came = [cast(list[dict[str, Any]], values.get("came") or []) for values in got]
    for rank, results in enumerate(came):
        for number, result in enumerate(results):
            where = f"Call {number}, rank {rank}"
            if "problem" in result:
                return Finding("no packets", f"{where}: {result['problem']}.", rank=rank)
            if result["changed"]:
                return Finding("gradient changed", f"{where}: compress changed a gradient.", rank=rank)
            for place, mean in enumerate(cast(list[Tensor], case.about["means"])):
                what = f"{where}, gradient {place} of shape {tuple(mean.shape)}"
                first = came[0][number]["parts"][place]
                found = _wrong_parts(case, mean, result["parts"][place], first, what)
                found = found or unlike(result["backs"][place], mean, f"{what}: what was unpacked")
                if found is not None:
                    return replace(found, rank=rank)
    for rank, results in enumerate(came):
        for number, result in enumerate(results):
            found = _wrong_averages(case, result["averaged"], f"Call {number}, rank {rank}")
            if found is not None:
                return replace(found, rank=rank)
    return _quality(case, came)


def _sizes(case: Case, mean: Tensor) -> tuple[int, int, int]:
    """Return n, m and the columns that P and Q have."""
    rows, others = len(mean), mean.numel() // len(mean)
    return rows, others, min(cast(int, case.inputs[0]["rank"]), rows, others)


def _wrong_parts(case: Case, mean: Tensor, parts: list[Tensor], first: list[Tensor], what: str) -> Finding | None:
    """Return what is wrong with P and Q of one gradient; `first` are those of rank 0."""
    rank = cast(int, case.inputs[0]["rank"])
    rows, others, columns = _sizes(case, mean)
    shapes, wanted = [tuple(part.shape) for part in parts], [(rows, columns), (others, columns)]
    if shapes != wanted:
        more = len(shapes) == 2 and [shape[:1] for shape in shapes] == [(rows,), (others,)] and columns < rank
        name = "more columns than the matrix has" if more else "not two thin matrices"
        return Finding(name, f"{what}: the parts have the shapes {shapes}.", f"{wanted}", f"{shapes}")
    if any(part.dtype != mean.dtype for part in parts):
        return Finding("not two thin matrices", f"{what}: the parts have the dtypes {[part.dtype for part in parts]}.")
    for part, other, name in zip(parts, first, ("P", "Q"), strict=True):
        if not near(part, other, 1e-9):
            return Finding(f"{name} is not averaged", f"{what}: {name} is not the same as on rank 0.")
    if not near(parts[0].T @ parts[0], torch.eye(columns, dtype=torch.float64), 1e-8):
        return Finding("P is not orthonormal", f"{what}: the columns of P are not orthonormal.")
    return None


def _wrong_averages(case: Case, averaged: list[int], where: str) -> Finding | None:
    """Return what is wrong with the calls of average in one call of compress: their numbers, or how many there were."""
    sizes = [_sizes(case, mean) for mean in cast(list[Tensor], case.about["means"])]
    most = sum((rows + others) * columns for rows, others, columns in sizes)
    if sum(averaged) > most:
        return Finding(
            "the whole matrix is averaged",
            f"{where}: average was called with {sum(averaged)} numbers; all P's and Q's together have {most}.",
            f"at most {most}",
            f"{sum(averaged)}",
        )
    if len(averaged) == 2 or (case.world_size == 1 and len(averaged) < 2):  # which one is missing, more ranks show
        return None
    name = "one average for each matrix" if len(averaged) > 2 else "average is not called"
    of = f"{len(sizes)} gradients" if len(sizes) > 1 else "one gradient"
    often = {0: "never called", 1: "called once"}.get(len(averaged), f"called {len(averaged)} times")
    return Finding(name, f"{where}: for {of}, average was {often}.", "2 calls", f"{len(averaged)}")


def _quality(case: Case, came: list[list[dict[str, Any]]]) -> Finding | None:
    calls = len(came[0])
    for place, mean in enumerate(cast(list[Tensor], case.about["means"])):
        best = cast(list[Tensor], expected(case)[0]["backs"])[place]
        last = cast(Tensor, came[0][-1]["backs"][place])
        what, length = f"Gradient {place} of shape {tuple(mean.shape)}", float(mean.norm())
        off, least = float((last - mean).norm()), float((best - mean).norm())
        if least <= _ROUNDING * length:
            if near(last, mean, _ROUNDING):
                continue
            name = "the sum came back" if near(last, mean * case.world_size, _ROUNDING) else "not the mean"
            name = name if bool(last.any()) else "nothing comes back"
            return wrong_value(
                name, f"{what}: its mean has so low a rank that it should come back as it is; what came", last, mean
            )
        if off > _NEAR_BEST * least:
            return Finding(
                "begins anew in every call",
                f"{what}: after {calls} calls with the same bucket, {off:.3g} of its length {length:.3g} is lost; the "
                f"best matrices of this rank lose {least:.3g}.",
                f"at most {_NEAR_BEST * least:.3g}",
                f"{off:.3g}",
            )
    return None


_NO_PRODUCT = (
    "must be 2-D",
    "must be matrices",
    "expected to be 2-D",
    "only supported on matrices",
    "mat1",
    "shapes cannot be multiplied",
    "tensors with 2 dimensions",
    "size mismatch",
    "must match the size of tensor",
)


def _of_matrices(case: Case) -> bool:
    """Return whether all gradients of the case are matrices already."""
    return all(mean.dim() == 2 for mean in cast(list[Tensor], case.about.get("means", [])))


def _no_product(name: str, hint: str, *, matrices: bool) -> Mistake:
    """Return the mistake of a product of shapes that do not fit, in a case of matrices alone or of others too."""
    failed = raising(name, hint, *_NO_PRODUCT)
    return Mistake(name, hint, lambda case, got, wire: failed.seen(case, got, wire) and _of_matrices(case) == matrices)


EXERCISE = judged(
    id="power_sgd",
    functions=("average_together", "PowerSGD"),
    given=("Packet",),
    driver=drive,
    oracle=expected,
    judge=judging(find),
    visible=(
        together_case("3 ranks average three tensors in one all-reduce", 675, 3, [(4, 3), (7,), (2, 2, 2)]),
        together_case("4 ranks, of which 0, 2 and 3 take part", 676, 4, [(5, 2), (3,)], group=(0, 2, 3)),
        power_case("one rank, two matrices of rank 2", 671, 1, [(9, 7), (5, 8)], 2, true_rank=2),
        power_case("3 ranks, two matrices, means of rank 2", 672, 3, [(8, 11), (6, 5)], 2, true_rank=2),
        power_case("3 ranks, a convolution, a bias and a matrix", 673, 3, [(6, 2, 3, 3), (6,), (4, 6)], 3, true_rank=3),
        power_case("2 ranks, noise, eight calls", 674, 2, [(20, 16), (20,)], 2, true_rank=2, noise=0.4, calls=8),
    ),
    hints=(
        "What must all ranks have averaged before P can be made orthonormal? And for how many matrices can one "
        "all-reduce do that? Write the three steps for a list of matrices, not for one.",
        "average_together: torch.cat of the flattened tensors, one all_reduce, divide, split by their numel(). "
        "compress: matrices = [gradient.reshape(len(gradient), -1) for ...], a Q of (m, min(rank, n, m)) for each. One "
        "average of all matrix @ q, each made orthonormal by qr; one average of all matrix.T @ p, kept in self.qs.",
        "ps = [torch.linalg.qr(p)[0] for p in self.average([matrix @ q for matrix, q in zip(matrices, self.qs)])]; "
        "self.qs = self.average([matrix.T @ p for matrix, p in zip(matrices, ps)]); then a "
        "Packet((p, q), gradient.shape, gradient.dtype) for each.",
    ),
    mistakes=(
        raising(
            "average of one tensor",
            "average takes a list and returns a list: hand it all P's at once, and then all Q's.",
            "was given one tensor",
        ),
        raising(
            "a list is no gradient",
            "compress gets the list of all gradients of a bucket, and returns a list with a packet for each.",
            "'list' object has no attribute",
        ),
        raising("Q and R", "torch.linalg.qr returns two tensors, Q and R: the columns are in [0].", "linalg_qr"),
        raising(
            "a Q of another dtype",
            "The first Q must have the gradient's dtype, float64 in these cases: torch.randn(...).to(gradient).",
            "to have the same dtype",
            "expected scalar type",
        ),
        NOT_FLAT,
        Mistake(
            "no transpose",
            "P is (n, r) and Q is (m, r): their product is P Q^T, p @ q.T.",
            lambda case, got, wire: (
                isinstance(got, Failure) and "in decompress" in got.detail and "mat1" in got.message
            ),
        ),
        _no_product(
            "no Q for each matrix",
            "A matrix met a Q that does not fit. Every gradient has a Q of its own, of shape (m, r), in the order of "
            "the gradients: self.qs is a list.",
            matrices=True,
        ),
        _no_product(
            "a gradient is no matrix",
            "A gradient with one dimension, or more than two: make it a matrix first, gradient.reshape(len(gradient), "
            "-1), and draw its Q for that.",
            matrices=False,
        ),
        raising(
            "a gradient is no matrix",
            "A bias has one dimension: make every gradient a matrix first, gradient.reshape(len(gradient), -1).",
            "Dimension out of range",
            "not enough values to unpack",
            "tuple index out of range",
            "too many values to unpack",
        ),
        WHOLE_WORLD,
        *mistakes(
            find,
            no_packets="compress returns a list: for each gradient a Packet((p, q), gradient.shape, gradient.dtype).",
            gradient_changed=COMMON["gradient_changed"],
            shape_lost="What comes back has the shape of what went in: .view_as(tensor) for a mean, "
            ".view(packet.shape) for a gradient.",
            dtype_lost=COMMON["dtype_lost"],
            more_columns_than_the_matrix_has="A matrix of n x m has at most min(n, m) columns worth sending, and a "
            "bias is one of n x 1: its Q has min(self.rank, n, m) columns.",
            not_two_thin_matrices="The parts are P of (n, r) and Q of (m, r), and nothing else.",
            P_is_not_averaged="P is another one on each rank: make orthonormal what self.average returns (it changes "
            "nothing in place), and draw the first Q from the seed, the same on all ranks.",
            Q_is_not_averaged="Q is another one on each rank: average matrix.T @ P as well, and take what self.average "
            "returns.",
            P_is_not_orthonormal="Make P's columns orthonormal after averaging: torch.linalg.qr(p)[0]. The mean of "
            "orthonormal matrices is not orthonormal.",
            the_sum_came_back="The sum of the matrices came back.",
            nothing_comes_back="Zeros came back: the first Q must be drawn at random, for what is zero stays zero.",
            the_whole_matrix_is_averaged="average sends what it is given: hand it P and Q, not the matrix, or nothing "
            "is saved.",
            average_is_not_called="compress reaches the other ranks by self.average alone, the P's with one call and "
            "the Q's with another. The hook hands it average_together.",
            not_the_mean="What comes back is not the mean: Q = M^T P needs the same orthonormal P on all ranks, and "
            "P = M Q the same first Q. Draw that from self.seed, by a torch.Generator.",
            begins_anew_in_every_call="Every call begins with another Q: keep the Q's that came out of the last call. "
            "One step of the power method is not enough; one more in each call is.",
            **TOGETHER,
            one_average_for_each_matrix="Each matrix was averaged for itself, and each average is an all-reduce with "
            "its latency. Collect all P's in a list and average that; then all Q's.",
        ),
    ),
)
