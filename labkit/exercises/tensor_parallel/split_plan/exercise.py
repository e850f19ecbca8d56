"""A design: how each matrix of a chain is cut, for given links and memory; the answer is data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from labkit.checks import values
from labkit.checks.case import Case, Value, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import WRONG_LENGTH
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.split_plan.driver import asked, drive
from labkit.plans.matrix_splits import COLUMNS, SPLITS, Machine, Matrix, memory_bytes, step_seconds
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


def deep_case(name: str, inner: Sequence[int], num_tokens: int, room: float, link: dict[str, float]) -> Case:
    """Return the case of a chain that is too long to try every plan, on 8 ranks, where memory forbids the fastest one.

    Args:
        name: What is special about it.
        inner: Widths between activations of width 4096, two matrices for each.
        num_tokens: Of a batch.
        room: Which share of what the fastest plan takes more than columns everywhere there is.
        link: NVLINK or NETWORK, with what the GPU is.
    """
    widths = (*(width for each in inner for width in (4096, each)), 4096)
    matrices, machine = asked(plan_case(name, widths, 8, num_tokens, math.inf, link).inputs[0])
    cut, fast = ([COLUMNS] * len(matrices), fastest(matrices, machine))
    least, wanted = (memory_bytes(matrices, plan, machine) for plan in (cut, fast))
    return plan_case(name, widths, 8, num_tokens, least + room * (wanted - least), link)


def filled(case: Case) -> Case:
    """Return a case with so much less memory that its fastest plan fills it to the last byte."""
    matrices, machine = asked(case.inputs[0])
    full = replace(machine, memory_bytes=memory_bytes(matrices, fastest(matrices, machine), machine))
    return replace(case, inputs=({**case.inputs[0], "machine": dict(asdict(full))},))


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
    best = _ms(case, fastest(*asked(case.inputs[0])))
    return Pars(_ms(case, [COLUMNS] * len(values.listed(case.inputs[0], "matrices"))), best, best)


def fastest(matrices: Sequence[Matrix], machine: Machine) -> list[str]:
    """Return the fastest plan that fits: matrix by matrix, of all plans that leave a part, or a whole activation, those
    for which none is both faster and smaller.
    """
    plans: list[list[str]] = [[]]
    for count in range(1, len(matrices) + 1):
        longer = [[*plan, split] for plan in plans for split in SPLITS]
        plans = [plan for part in (True, False) for plan in _unbeaten(matrices[:count], longer, machine, part)]
    return min(plans, key=lambda plan: step_seconds(matrices, plan, machine))


def _unbeaten(
    matrices: Sequence[Matrix], plans: Sequence[list[str]], machine: Machine, part: bool
) -> Iterator[list[str]]:  # fmt: skip
    of_kind = [plan for plan in plans if (plan[-1] == COLUMNS) == part]
    least = math.inf
    for _, needed, plan in sorted(
        (step_seconds(matrices, plan, machine), memory_bytes(matrices, plan, machine), plan) for plan in of_kind
    ):
        if needed < least and needed <= machine.memory_bytes:
            yield plan
            least = needed


_WORD, _MEMORY, _EVERY = "no such split", "too much memory", "every plan tried"
_NARROW = (4096, 512, 4096, 16384, 4096, 256, 4096)
_INNER = (512, 640, 2048, 768, 256, 1536, 4096, 16384, 1024, 320, 12288, 14336)

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
        Mistake(_EVERY,
                "24 matrices have 3^24 plans. Of the plans for the first few matrices, which can you drop, because "
                "another one is better whatever comes after?", says=("timeout",), endless=True),
        Mistake(WRONG_LENGTH, "Give one word for each matrix, in order."),
    ),
    visible=(
        filled(plan_case("narrow matrices between, NVLink", _NARROW, 8, 2048, 1.5e9, NVLINK)),
        plan_case("a narrow waist, across machines", (4096, 16384, 4096, 64, 4096, 16384, 4096), 8, 2048, 4e9, NETWORK),
        plan_case("little memory", (8192, 1024, 8192, 28672, 8192, 512, 8192), 8, 1024, 1.2e9, NVLINK),
        deep_case("24 matrices, memory for some of them whole", _INNER, 512, 0.4, NVLINK),
    ),
    hints=(
        "Go through the chain. Two plans for the first few matrices: when is one of them never worth keeping?",
        "What comes after asks two things of a plan for the first few: whether it leaves a part or a whole activation, "
        "and how much memory is left. Among plans that leave the same, drop each that another one beats in seconds "
        "and in bytes.",
        "For count from 1: give each kept plan all three words. For those that end in 'columns', and for the others, "
        "sort by (step_seconds(matrices[:count], plan, machine), memory_bytes(matrices[:count], plan, machine)) and "
        "keep a plan if it fits, and takes less memory than all before it. At last take the fastest.",
    ),
    distributed=False,
    challenge=Challenge("ms", milliseconds, pars, plan="splits", reference="Alpa", best="optimum"),
)  # fmt: skip
