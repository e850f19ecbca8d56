"""A design: how each matrix of a chain is cut, for given links and memory; the answer is data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from labkit.checks import values
from labkit.checks.case import Case, Value, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import WRONG_LENGTH
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.split_plan.driver import asked, drive
from labkit.plans.matrix_splits import COLUMNS, SPLITS, Machine, memory_bytes, step_seconds
from labkit.words import join

_GPU = {"flops": 370e12, "memory_bytes_per_second": 2.85e12, "launch_s": 4e-6}
NVLINK = {"latency_s": 2e-6, "bytes_per_second": 360e9, **_GPU}
NETWORK = {"latency_s": 10e-6, "bytes_per_second": 48e9, **_GPU}


def plan_case(
    name: str, widths: Sequence[int], num_ranks: int, num_tokens: int, memory: float, link: dict[str, float]
) -> Case:
    """Return a case of split_plan.

    Args:
        name: What is special about it.
        widths: Of the activations between the matrices, one more than there are matrices.
        num_ranks: How many share them.
        num_tokens: Of a batch.
        memory: Bytes for weights, gradients and moments on a rank.
        link: NVLINK or NETWORK, with what the GPU is.
    """
    matrices: list[Value] = [[f"m{n}", a, b] for n, (a, b) in enumerate(itertools.pairwise(widths))]
    machine: dict[str, Value] = dict(asdict(Machine(num_ranks, num_tokens, memory, **link)))
    return Case(name, 1, ({"matrices": matrices, "machine": machine},))


def structure(case: Case) -> list[object]:
    """Return what results look like: a word for each matrix."""
    return [{"splits": [str] * len(values.listed(case.inputs[0], "matrices"))}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: another word, or more memory than there is."""
    (matrices, machine), splits = asked(case.inputs[0]), values.listed(got[0], "splits")
    if len(splits) != len(matrices):
        yield Finding(WRONG_LENGTH, f"{len(splits)} words for {len(matrices)} matrices.")
    for matrix, split in zip(matrices, splits, strict=True):
        if split not in SPLITS:
            yield Finding(_WORD, f"{matrix.name} is {split!r:.40}.", join(SPLITS), repr(split)[:40])
    needed = memory_bytes(matrices, splits, machine)
    if needed > machine.memory_bytes:
        has = f"{machine.memory_bytes / 1e9:.3g} GB"
        yield Finding(_MEMORY, f"{splits} takes {needed / 1e9:.3g} GB on each rank; a rank has {has}.")


def milliseconds(case: Case, got: tuple[Values, ...]) -> float:
    """Return how long a step takes with the plan that came."""
    return _ms(case, values.texts(got[0], "splits"))


def _ms(case: Case, splits: Sequence[str]) -> float:
    matrices, machine = asked(case.inputs[0])
    return 1e3 * step_seconds(matrices, splits, machine)


def pars(case: Case) -> Pars:
    """Return what columns everywhere take, and the best of all plans, which is what Alpa (2022) looks for."""
    matrices, machine = asked(case.inputs[0])
    plans = itertools.product(SPLITS, repeat=len(matrices))
    best = min(_ms(case, plan) for plan in plans if memory_bytes(matrices, plan, machine) <= machine.memory_bytes)
    return Pars(_ms(case, [COLUMNS] * len(matrices)), best, best)


_WORD, _MEMORY = "no such split", "too much memory"

EXERCISE = declared(
    id="split_plan",
    functions=("split_plan",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(find,),
    mistakes=(
        Mistake(_WORD, "A matrix is cut by 'columns', by 'rows', or kept 'whole'."),
        Mistake(_MEMORY,
                "The plan does not fit: ask memory_bytes(matrices, splits, machine), and keep fewer or smaller "
                "matrices whole."),
        Mistake(WRONG_LENGTH, "Give one word for each matrix, in order."),
    ),
    visible=(
        plan_case("two MLPs, NVLink", (4096, 16384, 4096, 16384, 4096), 8, 2048, 3e9, NVLINK),
        plan_case("narrow matrices between, NVLink", (4096, 512, 4096, 16384, 4096, 256, 4096), 8, 2048, 1.5e9, NVLINK),
        plan_case("a narrow waist, across machines", (4096, 16384, 4096, 64, 4096, 16384, 4096), 8, 2048, 4e9, NETWORK),
        plan_case("little memory", (8192, 1024, 8192, 28672, 8192), 8, 2048, 1.2e9, NVLINK),
    ),
    hints=(
        "Which of the four cases do you beat with columns and rows in turn? Where would you still exchange activations "
        "that cost more than the matrix between them?",
        "Few matrices, three words: try every plan that fits into memory, and take the fastest.",
        "itertools.product(('columns', 'rows', 'whole'), repeat=len(matrices)) gives all plans; keep those whose "
        "memory_bytes fit; min(plans, key=lambda plan: step_seconds(matrices, plan, machine)).",
    ),
    distributed=False,
    challenge=Challenge("ms", milliseconds, pars, plan="splits", reference="Alpa's optimum"),
)  # fmt: skip
