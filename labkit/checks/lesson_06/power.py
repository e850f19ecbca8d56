"""6.7, PowerSGD: two thin matrices, the same on all ranks, that stand for the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.drivers.lesson_06 import power
from labkit.checks.exercise import Exercise
from labkit.checks.lesson_06.findings import (
    Finding,
    judging,
    mistakes,
    near,
    normal,
    part_bytes,
    raising,
    unlike,
    wrong_value,
)
from labkit.checks.lesson_06.packets import COMMON
from labkit.checks.wire import Wire

_NEAR_BEST = 1.05


def power_case(
    name: str,
    seed: int,
    world_size: int,
    shape: Sequence[int],
    rank: int,
    *,
    true_rank: int,
    noise: float = 0.0,
    calls: int = 1,
) -> Case:
    """Return a case in which the mean of the ranks' matrices has rank `true_rank`, but for noise.

    Args:
        name: What is special about it.
        seed: Draws the matrices.
        world_size: Ranks.
        shape: Of the gradient; more than two dimensions make a matrix of the first by all others.
        rank: Columns of the thin matrices.
        true_rank: Rank of the mean without noise.
        noise: Of the mean, relative to its own entries.
        calls: How often the same gradient comes.
    """
    rows, columns = shape[0], int(torch.Size(shape[1:]).numel())
    mean = normal(seed, rows, true_rank, dtype=torch.float64) @ normal(
        seed + 1, true_rank, columns, dtype=torch.float64
    )
    mean = mean + noise * normal(seed + 2, rows, columns, dtype=torch.float64)
    apart = [normal(seed + 3 + each, rows, columns, dtype=torch.float64) for each in range(world_size)]
    middle = torch.stack(apart).mean(0)
    inputs: list[Values] = []
    for each in apart:
        gradient = (mean + each - middle).view(*shape)
        inputs.append({"rank": rank, "gradients": cast(Value, [gradient] * calls)})
    about: dict[str, Value] = {"mean": mean.view(*shape), "exact": noise == 0.0 and rank >= true_rank}
    return Case(name, world_size, tuple(inputs), about)


def expected(case: Case) -> list[Values]:
    """Return the best that so thin matrices can do for the mean, by its singular values (the oracle)."""
    mean, rank = cast(Tensor, case.about["mean"]), cast(int, case.inputs[0]["rank"])
    u, s, v = torch.linalg.svd(mean.reshape(len(mean), -1), full_matrices=False)
    best = (u[:, :rank] * s[:rank]) @ v[:rank]
    return [{"back": best.view(mean.shape)}] * case.world_size


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong."""
    mean, columns = cast(Tensor, case.about["mean"]), cast(int, case.inputs[0]["rank"])
    rows, others = len(mean), mean.numel() // len(mean)
    came = [cast(list[dict[str, Any]], values.get("came") or []) for values in got]
    for rank, results in enumerate(came):
        for number, result in enumerate(results):
            where = f"Call {number}, rank {rank}"
            if "problem" in result:
                return Finding("no packet", f"{where}: {result['problem']}.")
            if result["changed"]:
                return Finding("gradient changed", f"{where}: compress changed the gradient.")
            parts = cast(list[Tensor], result["parts"])
            shapes = [tuple(part.shape) for part in parts]
            if shapes != [(rows, columns), (others, columns)]:
                return Finding("not two thin matrices", f"{where}: the parts have the shapes {shapes}.", f"{[(rows, columns), (others, columns)]}", f"{shapes}")  # fmt: skip  # noqa: E501
            if part_bytes(cast(Value, parts)) > (rows + others) * columns * 8:
                return Finding("not two thin matrices", f"{where}: the parts have more bytes than two thin matrices.")
            odd = unlike(result["back"], mean, f"{where}: what was unpacked")
            if odd is not None:
                return odd
            for part, other, name in zip(parts, came[0][number]["parts"], ("P", "Q"), strict=True):
                if not near(part, other, 1e-9):
                    return Finding(f"{name} is not averaged", f"{where}: {name} is not the same as on rank 0.")
            if not near(parts[0].T @ parts[0], torch.eye(columns, dtype=torch.float64), 1e-8):
                return Finding("P is not orthonormal", f"{where}: the columns of P are not orthonormal.")
            most = (rows + others) * columns
            if result["averaged"] > most:
                return Finding(
                    "the whole matrix is averaged",
                    f"{where}: average was called with {result['averaged']} numbers; P and Q have {most}.",
                    f"at most {most}",
                    f"{result['averaged']}",
                )
    return _quality(case, came)


def _quality(case: Case, came: list[list[dict[str, Any]]]) -> Finding | None:
    mean, best = cast(Tensor, case.about["mean"]), cast(Tensor, expected(case)[0]["back"])
    last = cast(Tensor, came[0][-1]["back"])
    if case.about["exact"]:
        if not near(last, mean, 1e-7):
            name = "the sum came back" if near(last, mean * case.world_size, 1e-7) else "not the mean"
            name = name if bool(last.any()) else "nothing comes back"
            return wrong_value(
                name, "The mean has so low a rank that it should come back as it is; what came", last, mean
            )
        return None
    off, least = float((last - mean).norm()), float((best - mean).norm())
    if off > _NEAR_BEST * least:
        calls = len(came[0])
        return Finding(
            "begins anew in every call",
            f"After {calls} calls with the same gradient, {off:.3g} of its length {float(mean.norm()):.3g} is "
            "lost; the best "
            f"matrices of this rank lose {least:.3g}.",
            f"at most {_NEAR_BEST * least:.3g}",
            f"{off:.3g}",
        )
    return None


EXERCISE = Exercise(
    id="6.7",
    title="PowerSGD",
    functions=("PowerSGD",),
    given=("Packet",),
    driver=power,
    oracle=expected,
    judge=judging(find),
    visible=(
        power_case("one rank, a matrix of rank 2", 671, 1, (9, 7), 2, true_rank=2),
        power_case("3 ranks, a mean of rank 1", 672, 3, (8, 11), 2, true_rank=1),
        power_case("3 ranks, a convolution's gradient", 673, 3, (6, 2, 3, 3), 3, true_rank=2),
        power_case("2 ranks, noise, eight calls", 674, 2, (20, 16), 2, true_rank=2, noise=0.4, calls=8),
    ),
    hints=(
        "Which of P and Q is averaged when? And with which Q does the second call begin?",
        "matrix = gradient.reshape(len(gradient), -1). P = average(matrix @ q), then orthonormal by qr; q = average("
        "matrix.T @ P), kept in self for the next call. The first q is drawn from the seed.",
        "p = torch.linalg.qr(self.average(matrix @ self.q))[0]; self.q = self.average(matrix.T @ p); "
        "return Packet((p, self.q), gradient.shape, gradient.dtype)",
    ),
    mistakes=(
        raising(
            "a convolution is no matrix",
            "A gradient with more than two dimensions: reshape it to (its first dimension, all others).",
            "must be 2-D",
            "must be matrices",
            "expected to be 2-D",
            "only supported on matrices",
            "mat1",
            "shapes cannot be multiplied",
            "tensors with 2 dimensions",
        ),
        *mistakes(
            find,
            no_packet=COMMON["no_packet"],
            gradient_changed=COMMON["gradient_changed"],
            shape_lost=COMMON["shape_lost"],
            not_two_thin_matrices="The parts are P of (n, r) and Q of (m, r), and nothing else.",
            P_is_not_averaged="P is another one on each rank: average it before you make it orthonormal, and draw "
            "the first "
            "Q from the seed, the same on all ranks.",
            Q_is_not_averaged="Q is another one on each rank: average matrix.T @ P as well.",
            P_is_not_orthonormal="Make P's columns orthonormal after averaging: torch.linalg.qr(p)[0]. The mean of "
            "orthonormal matrices is not orthonormal.",
            the_sum_came_back="The sum of the matrices came back.",
            nothing_comes_back="Zeros came back: the first Q must be drawn at random, for what is zero stays zero.",
            the_whole_matrix_is_averaged="average sends what it is given: hand it P and Q, not the matrix, or nothing "
            "is saved.",
            not_the_mean="What comes back is not the mean: Q = M^T P needs the same orthonormal P on all ranks, and "
            "P = M Q the same first Q. Draw that from self.seed, by a torch.Generator.",
            begins_anew_in_every_call="Every call begins with another Q: keep the Q that came out of the last "
            "call. One step "
            "of the power method is not enough; one more in each call is.",
        ),
    ),
)
