"""How many layers each stage of a pipeline gets, where stages differ in what they must compute again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from labkit.checks.case import Case, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.values import integer, listed
from labkit.checks.wire import Wire
from labkit.exercises.hybrid_parallelism.best_plans import fewest_again
from labkit.exercises.hybrid_parallelism.deal_layers.driver import drive
from labkit.plans.hybrid_step import JOBS, Job, MeshPlan, layer_seconds

Seconds = list[list[float]]


def dealt_case(name: str, seconds: Sequence[Sequence[float]], num_layers: int, num_microbatches: int) -> Case:
    """Return a case of deal_layers; seconds[s][n - 1] is what stage s takes with n layers."""
    rows = [list(row) for row in seconds]
    return Case(name, 1, ({"seconds": rows, "num_layers": num_layers, "num_microbatches": num_microbatches},))


def mesh_case(name: str, job: Job, plan: MeshPlan, *, last: float = 0.0) -> Case:
    """Return the case of a job on a mesh: each stage computes as few layers again as it must.

    Args:
        name: What is special about it.
        job: What is trained.
        plan: On which mesh.
        last: Layers' worth of work that the last stage has besides, for the vocabulary.
    """
    products, reduce, again = layer_seconds(job, plan)
    fewest = fewest_again(job, plan, job.num_layers - plan.size("pipeline") + 1)
    rows = [[n * (products + reduce) + row[n] * again for n in range(1, len(row))] for row in fewest]
    rows[-1] = [each + last * products for each in rows[-1]]
    return dealt_case(name, rows, job.num_layers, job.batch // plan.size("data") // plan.microbatch)


def _given(case: Case) -> tuple[Seconds, int, int]:
    inputs = case.inputs[0]
    return listed(inputs, "seconds"), integer(inputs, "num_layers"), integer(inputs, "num_microbatches")


def step_seconds(case: Case, layers: Sequence[int]) -> float:
    """Return what a step takes with so many layers on each stage, all of which fit."""
    _, _, num_microbatches = _given(case)
    times = _times(case, layers)
    return sum(times) + (num_microbatches - 1) * max(times)


def _times(case: Case, layers: Sequence[int]) -> list[float]:
    seconds, _, _ = _given(case)
    return [row[n - 1] for row, n in zip(seconds, layers, strict=True)]


def fastest_dealt(case: Case, num_microbatches: int | None = None) -> list[int]:
    """Return the layers of each stage with which a step is shortest.

    For each time that the slowest stage may take: of all ways to deal out layers within it, that with the least sum.
    """
    seconds, num_layers, given = _given(case)
    rest = (given if num_microbatches is None else num_microbatches) - 1
    best: tuple[float, list[int]] = (math.inf, [])
    for limit in sorted({each for row in seconds for each in row}):
        if rest * limit >= best[0]:
            break
        dealt: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
        for stage in seconds:
            further: dict[int, tuple[float, list[int]]] = {}
            for before, (total, layers) in dealt.items():
                for more, time in enumerate(stage[: num_layers - before], 1):
                    if time <= limit:
                        tried = (total + time, [*layers, more])
                        further[before + more] = min(further.get(before + more, tried), tried)
            dealt = further
        if num_layers in dealt:
            best = min(best, (dealt[num_layers][0] + rest * limit, dealt[num_layers][1]))
    return best[1]


def one_way_each(case: Case) -> list[int]:
    """Return what comes of keeping, stage by stage, one way for each number of layers: that with the shortest step."""
    seconds, num_layers, num_microbatches = _given(case)
    ways: dict[int, tuple[float, float, list[int]]] = {0: (0.0, 0.0, [])}  # the slowest stage, the sum, and how
    for row in seconds:
        after: dict[int, tuple[float, float, list[int]]] = {}
        for done, (slowest, total, layers) in ways.items():
            for n, time in enumerate(row[: num_layers - done], 1):
                way = max(slowest, time), total + time, [*layers, n]
                step = way[1] + (num_microbatches - 1) * way[0]
                old = after.get(done + n)
                if old is None or step < old[1] + (num_microbatches - 1) * old[0]:
                    after[done + n] = way
        ways = after
    return ways[num_layers][2]


def _one_by_one(case: Case) -> list[int]:
    """Return what comes of giving each layer to the stage that is done first with one more."""
    seconds, num_layers, _ = _given(case)
    layers = [1] * len(seconds)
    for _ in range(num_layers - len(layers)):
        room = [stage for stage, row in enumerate(seconds) if layers[stage] < len(row)]
        if not room:
            return []
        layers[min(room, key=lambda stage: seconds[stage][layers[stage]])] += 1
    return layers


def _by_the_step(case: Case) -> list[int]:
    """Return what comes of giving each layer to the stage with which the step of all dealt out so far is shortest."""
    seconds, num_layers, _ = _given(case)
    layers = [1] * len(seconds)
    for _ in range(num_layers - len(layers)):
        tries = [[n + (each == stage) for each, n in enumerate(layers)] for stage in range(len(layers))]
        fit = [each for each in tries if all(n <= len(row) for n, row in zip(each, seconds, strict=True))]
        if not fit:
            return []
        layers = min(fit, key=lambda each: step_seconds(case, each))
    return layers


def _one_entry_on(case: Case) -> list[int]:
    """Return what comes of taking seconds[s][n] for n layers."""
    seconds, num_layers, num_microbatches = _given(case)
    return fastest_dealt(dealt_case(case.name, [row[1:] for row in seconds], num_layers, num_microbatches))


def _no_move_helps(case: Case, layers: list[int]) -> bool:
    """Return whether a step gets no shorter by moving a layer from one stage to another, whichever."""
    seconds, _, _ = _given(case)
    took = step_seconds(case, layers)
    for giver in range(len(layers)):
        for taker in range(len(layers)):
            moved = [n - (stage == giver) + (stage == taker) for stage, n in enumerate(layers)]
            fits = all(1 <= n <= len(row) for n, row in zip(moved, seconds, strict=True))
            if fits and step_seconds(case, moved) < took * (1 - 1e-9):
                return False
    return True


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield why layers are not dealt out, or that a step could be shorter."""
    seconds, num_layers, _ = _given(case)
    layers = got[0]["layers"]
    if not isinstance(layers, list) or any(type(each) is not int for each in layers):
        yield Finding(_NO_LIST, f"deal_layers returned {layers!s:.60}, expected a list of whole numbers.")
        return
    if len(layers) != len(seconds) or min(layers) < 1 or sum(layers) != num_layers:
        text = f"{layers} deals out {sum(layers)} layers to {len(layers)} stages"
        yield Finding(_LOST, f"{text}; there are {num_layers} for {len(seconds)}, one or more each.")
        return
    for stage, (row, count) in enumerate(zip(seconds, layers, strict=True)):
        if count > len(row):
            yield Finding(_TOO_MANY, f"Stage {stage} gets {count} layers, and {len(row)} fit.")
            return
    took, best = step_seconds(case, layers), step_seconds(case, fastest_dealt(case))
    if took > best * (1 + 1e-9):
        text = f"With {layers} a step takes {took:.4g} s; it can take {best:.4g} s."
        yield Finding(_which(case, layers), text, f"{best:.4g} s", f"{took:.4g} s")


def _which(case: Case, layers: list[int]) -> str:
    """Return which rule gave these layers, "" where none is known."""
    _, num_layers, num_microbatches = _given(case)
    times = _times(case, layers)
    if len(set(layers)) == 1 or layers == _even(num_layers, len(layers)):
        return _EQUAL
    if math.isclose(sum(times), sum(_times(case, fastest_dealt(case, 1)))):
        return _SUM
    slowest = max(_times(case, fastest_dealt(case, 10**6)))
    again = _times(case, fastest_dealt(case, num_microbatches + 1))
    if max(times) > slowest and math.isclose(
        sum(times) + num_microbatches * max(times), sum(again) + num_microbatches * max(again)
    ):
        return _AGAIN
    if layers in (_one_by_one(case), _by_the_step(case)):
        return _GREEDY
    if math.isclose(step_seconds(case, layers), step_seconds(case, one_way_each(case))):
        return _ONE_WAY
    if math.isclose(max(times), slowest):
        return _SLOWEST
    even = _taken_for_even(case)
    if math.isclose(step_seconds(even, layers), step_seconds(even, fastest_dealt(even))):
        return _EVEN_TIMES
    if layers == _one_entry_on(case):
        return _ENTRY
    return _NO_MOVE if _no_move_helps(case, layers) else ""


def _taken_for_even(case: Case) -> Case:
    """Return the case in which each layer of a stage takes as long as its first one."""
    seconds, num_layers, num_microbatches = _given(case)
    rows = [[n * row[0] for n in range(1, len(row) + 1)] for row in seconds]
    return dealt_case(case.name, rows, num_layers, num_microbatches)


def _even(num_layers: int, stages: int) -> list[int]:
    return [num_layers // stages + (stage < num_layers % stages) for stage in range(stages)]


_EVEN_TIMES, _ENTRY, _NO_MOVE = "times taken for even", "one entry on", "no single move helps"
_NO_LIST, _LOST, _TOO_MANY = "no list", "layers lost", "does not fit"
_EQUAL, _SUM, _SLOWEST, _GREEDY = "equal stages", "the sum alone", "the slowest stage alone", "one layer at a time"
_ONE_WAY, _AGAIN = "one way for each number of layers", "the slowest stage once too often"

_UNLIKE = ((2.5, 4.0, 5.0, 6.0), (1.0, 3.5, 6.0), (1.5, 2.5, 4.0, 5.0, 6.0))
_LIMITS = ((3.0, 4.0, 5.5), (4.0, 10.0, 13.0), (6.0, 12.0, 13.5, 14.5), (2.0, 7.0, 12.0, 13.0))
_TRADE = ((5.5, 9.0, 13.0, 16.0, 19.0), (5.0, 10.0), (1.0, 4.0, 10.0, 11.0), (4.0, 8.0, 11.0))
_ALIKE = [float(n) for n in range(1, 11)]
_SEVEN_BILLION = JOBS["7 B on 16 RTX 4090s, 24 GB each, over PCIe"]

EXERCISE = declared(
    id="deal_layers",
    functions=("deal_layers",),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"layers": ANYTHING}],
    looks=(find,),
    mistakes=(
        Mistake(_NO_LIST, "Return a list: how many layers each stage gets, the first stage first."),
        Mistake(_LOST, "Each stage has one layer or more, and together they have num_layers."),
        Mistake(_TOO_MANY, "seconds[s] has an entry for each number of layers that fits on stage s, and no more."),
        Mistake(_EVEN_TIMES,
                "So it comes out if every layer of a stage took equally long. Times do not grow evenly: look up what "
                "stage s takes with n layers, seconds[s][n - 1]."),
        Mistake(_EQUAL,
                "Stages have as many layers each, as nearly as can be. Take one from a stage that must compute many "
                "again, and give it to one that has room."),
        Mistake(_SUM,
                "The sum of all stages is as small as it can be. But the slowest stage counts for every microbatch, "
                "the sum for one."),
        Mistake(_SLOWEST,
                "The slowest stage is as fast as it can be. But of all ways to reach that, take the one whose stages "
                "take least together; and with few microbatches a slower one can be worth it."),
        Mistake(_AGAIN,
                "This is best if the slowest stage counts M times beside the sum; but the sum has it once, so it "
                "counts M - 1 times more. It also comes of trying too few limits: any time in seconds can be the "
                "slowest stage's, of any stage, and a step that gets longer with one limit can get shorter with "
                "the next."),
        Mistake(_ONE_WAY,
                "For each number of layers dealt out you keep one way: the one whose step is shortest so far. A way "
                "with a slower stage and a smaller sum can win once a later stage is that slow anyway. Fix how slow "
                "the slowest stage may be, and try every such limit."),
        Mistake(_GREEDY,
                "So it comes out if each layer goes to the stage that is done first with one more, or where the step "
                "grows least; or if the slowest stage counts for more than M - 1 times beside the sum of all. None of "
                "these gives the shortest step: a stage's times do not grow evenly, and the sum counts, too."),
        Mistake(_ENTRY, "seconds[s][n - 1] is for n layers: the first entry is for one."),
        Mistake(_NO_MOVE,
                "No single layer that moves to another stage makes this step shorter, but several at once do. A search "
                "that stops here is not enough: go through every time that the slowest stage may take."),
    ),
    visible=(
        dealt_case("2 stages, 5 layers", ((1.0, 2.0, 3.4), (1.0, 2.0, 3.0, 4.0)), 5, 4),
        dealt_case("3 stages, 2 microbatches", _UNLIKE, 8, 2),
        mesh_case("7 B, 4 stages on 16 RTX 4090s", _SEVEN_BILLION,
                  MeshPlan((("pipeline", 4), ("data", 4), ("tensor", 1)))),
        dealt_case("the last stage has the vocabulary", [_ALIKE, _ALIKE, _ALIKE, [2.5 + each for each in _ALIKE]],
                   24, 32),
        dealt_case("4 stages, 3 microbatches", _LIMITS, 10, 3),
        dealt_case("4 stages, a slow one pays off later", _TRADE, 9, 5),
        dealt_case("1 stage, 1 microbatch", ((2.0, 3.5, 6.0),), 3, 1),
    ),
    hints=(
        "Say the slowest stage may take so long and no longer. What is then left to be made small?",
        "For one limit: of all ways to deal out the layers with every stage within it, the one with the least sum. "
        "Deal out stage by stage, and for each number of layers dealt out so far keep only the best way. Then try "
        "every limit that some stage can take.",
        "for limit in every time in seconds: ways = {0: (0.0, [])}; for each row: of every way and every n with "
        "row[n - 1] <= limit, the way with the least sum for each number of layers; then ways[num_layers] plus "
        "(num_microbatches - 1) * limit.",
    ),
    distributed=False,
)  # fmt: skip
