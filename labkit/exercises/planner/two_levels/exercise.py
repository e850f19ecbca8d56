"""A design: stages on submeshes of their own, a way to cut each operator; the answer is a plan, scored by its step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isclose

from labkit.checks.case import Case, Value, Values
from labkit.checks.challenge import Challenge, Pars, for_half_and_all
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.wire import Wire
from labkit.exercises.planner.graph_plans import known, slips
from labkit.exercises.planner.graphs import Described, as_data, described_in, graph_in
from labkit.exercises.planner.two_levels.driver import MOST_LOOKS, TRIES_ALL, drive
from labkit.plans.operator_graph import WAYS, Stage, step_seconds


def graph_case(name: str, described: Described) -> Case:
    """Return the case of a graph of operators."""
    return Case(name, 1, (as_data(described),))


def _plan(data: Value) -> list[Stage] | None:
    if not isinstance(data, list) or not data:
        return None
    stages = []
    for each in data:
        if not isinstance(each, list) or len(each) != 2 or not isinstance(each[1], list):
            return None
        gpus, ways = each
        if type(gpus) is not int or not ways or any(type(way) is not int for way in ways):
            return None
        stages.append(Stage(gpus, tuple(way for way in ways if isinstance(way, int))))
    return stages


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield why this is no plan of the graph."""
    graph, plan = graph_in(case.inputs[0]), _plan(got[0]["plan"])
    if got[0]["plan"] == TRIES_ALL:
        yield Finding(TRIES_ALL, f"two_levels looked at graph.seconds more than {MOST_LOOKS:,} times.")
        return
    if plan is None:
        text = f"two_levels returned {got[0]['plan']!s:.90}, expected a list of Stages with a way for each operator."
        yield Finding(_NO_PLAN, text)
        return
    for stage in plan:
        if stage.gpus not in graph.seconds[0]:
            yield Finding(_NO_MESH, f"A stage has {stage.gpus} GPUs; the tables know {list(graph.seconds[0])}.")
            return
        if not set(stage.ways) <= set(range(len(WAYS))):
            yield Finding(_NO_WAY, f"A stage's ways are {list(stage.ways)}; a way is 0, 1 or 2.")
            return
    count = sum(len(stage.ways) for stage in plan)
    if count != len(graph.seconds):
        yield Finding(_LOST, f"The stages have {count} operators; the graph has {len(graph.seconds)}.")
        return
    used = sum(stage.gpus for stage in plan)
    if used != graph.num_gpus:
        yield Finding(_GPUS, f"The stages have {used} GPUs; the cluster has {graph.num_gpus}.")
        return
    if case.about:  # for_half_and_all's: points are for as little as Alpa
        yield from _as_slow_as(case, step_seconds(graph, plan), plan)


def _as_slow_as(case: Case, seconds: float, plan: Sequence[Stage]) -> Iterator[Finding]:
    """Yield the usual mistake whose plan takes as long, or looks so, where points are for as little as Alpa."""
    described = described_in(case.inputs[0])
    naive, best = known(described)
    if isclose(seconds, best):
        return
    took = f"A step takes {1e3 * seconds:,.4g} ms; Alpa's takes {1e3 * best:,.4g}."
    slip = next((how for how, each in slips(described).items() if isclose(seconds, each)), "")
    slip = slip or (_EQUAL if isclose(seconds, naive) else _form(plan))
    if slip:
        yield Finding(slip, took, f"{1e3 * best:,.4g} ms", f"{1e3 * seconds:,.4g} ms")


def _form(plan: Sequence[Stage]) -> str:
    """Return what a plan that is not the best has been bound to by its form, or ""."""
    lengths = [len(stage.ways) for stage in plan]
    if len(plan) == 1:
        return _ALONE
    return _EVEN if max(lengths) - min(lengths) <= 1 and len({stage.gpus for stage in plan}) == 1 else ""


def score(case: Case, got: tuple[Values, ...]) -> float:
    """Return the milliseconds of a step by the plan that came."""
    plan = _plan(got[0]["plan"])
    assert plan is not None
    return 1e3 * step_seconds(graph_in(case.inputs[0]), plan)


def pars(case: Case) -> Pars:
    """Return the milliseconds of the best plan whose stages are alike, and of Alpa's, which is the best there is."""
    naive, best = known(described_in(case.inputs[0]))
    return Pars(1e3 * naive, 1e3 * best, 1e3 * best)


_NO_PLAN, _NO_MESH, _NO_WAY = "no plan", "no such submesh", "no such way"
_LOST, _GPUS, _EQUAL = "operators lost", "not all GPUs", "stages alike"
_ALONE, _EVEN = "one stage", "cut evenly"
_LARGE, _SMALL = (4.0, 8.0, 256.0), (4.0, 512.0, 16.0)
"""Operators with large activations, as at the image's end of a network, and with large weights, as at the other."""

FULL: tuple[tuple[str, Described], ...] = (
    ("7 operators that are read again", (
        ((2.0, 512.0, 4.0), (2.0, 8.0, 64.0), (4.0, 512.0, 64.0), (4.0, 512.0, 4.0), (2.0, 8.0, 512.0),
         (8.0, 2048.0, 256.0), (4.0, 8.0, 16.0)), 8, 4, (2, 3, 4, 6))),
    ("12 operators", (
        ((4.0, 2048.0, 512.0), (4.0, 512.0, 64.0), (8.0, 64.0, 256.0), (2.0, 512.0, 64.0), (2.0, 8.0, 512.0),
         (2.0, 512.0, 4.0), (4.0, 2048.0, 4.0), (4.0, 64.0, 4.0), (4.0, 8.0, 256.0), (2.0, 2048.0, 64.0),
         (8.0, 8.0, 64.0), (8.0, 512.0, 64.0)), 8, 8, (6, 7, 10, 11))),
    ("5 operators, three microbatches", (
        ((8.0, 8.0, 16.0), (2.0, 2048.0, 256.0), (2.0, 2048.0, 256.0), (8.0, 2048.0, 512.0), (8.0, 8.0, 64.0)),
        8, 3, ())),
    ("6 operators with skips", (
        ((8.0, 64.0, 64.0), (2.0, 512.0, 64.0), (4.0, 64.0, 256.0), (4.0, 2048.0, 64.0), (8.0, 8.0, 64.0),
         (2.0, 512.0, 16.0)), 8, 4, (2, 4, 5))),
)  # fmt: skip
"""In the first each slip has a plan of its own: a skip decides, the last way is not enough, stages are unlike. The
second is too large for trying every way of every stage. In the third (M - 2) x max(t), a limit that no stage may reach
and a plan that may leave GPUs over are dearer. In the fourth, M x max(t) chooses another plan."""

EXERCISE = declared(
    id="two_levels",
    functions=("two_levels",),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"plan": ANYTHING}],
    looks=(find,),
    mistakes=(
        Mistake(_NO_PLAN, "Return a list of Stage(gpus, ways): a way, 0 to 2, for each of the stage's operators."),
        Mistake(_NO_MESH, "A stage's GPUs are a key of graph.seconds[0]: 1, 2, 4, ..."),
        Mistake(_NO_WAY, "A way is an index into the tables: 0, 1 or 2."),
        Mistake(_LOST, "Stages have all operators, each once and in their order."),
        Mistake(TRIES_ALL, "Twelve operators have 3 ** 12 ways. Add one at a time, and of ways that differ only where "
                "nothing reads any more keep the fastest."),
        Mistake("no between", "Add graph.between[a, b][gpus][way_a][way_b] wherever b reads what a of the same stage "
                "wrote."),
        Mistake("no skips", "Weigh every (a, o) of graph.between: a residual connection reads further back than o - 1, "
                "and an operator's own fastest way may be dear for those that read it."),
        Mistake("last way", "An operator that is read again later is still open: keep its way, too, and not the "
                "last one's alone."),
        Mistake("one by one", "The fastest way of an operator may be the wrong one for those that read it: keep the "
                "best for each way."),
        Mistake("one way", "Your stages cut all of their operators in one way. Within a stage each operator has a "
                "way of its own: compare what it saves with what graph.between asks for the change."),
        Mistake("one twice", "You weigh a plan by sum(t) + M x max(t). The first microbatch is in sum(t) already: a "
                "step takes sum(t) + (M - 1) x max(t)."),
        Mistake("one less", "You weigh a plan by sum(t) + (M - 2) x max(t). Only the first microbatch is in sum(t): a "
                "step takes sum(t) + (M - 1) x max(t)."),
        Mistake("below", "The slowest stage takes the limit itself: leave out what takes longer, and not what takes as "
                "long."),
        Mistake("slowest", "Not only the slowest stage counts. A slower one may save more elsewhere: a step takes "
                "sum(t) + (M - 1) x max(t)."),
        Mistake("sum", "Each microbatch but one costs the slowest stage: sum(t) + (M - 1) x max(t), not sum(t)."),
        Mistake("alike", "Stages may have unlike numbers of GPUs: 4, 2 and 2 are 8, too."),
        Mistake(_ALONE, "All operators are one stage here. With several, microbatches overlap: compare all ways to cut "
                "the row into stages."),
        Mistake(_EVEN, "Your stages have as many GPUs each, and as many operators as can be. Compare all places to "
                "cut, and all submeshes: a stage of few operators may want many GPUs."),
        Mistake(_EQUAL, "That is what stages alike take, cut in one way. Choose a way for each operator."),
        Mistake(_GPUS, "Together the stages have all of graph.num_gpus, no more and no fewer."),
    ),
    visible=(
        *(for_half_and_all([graph_case(name, described)])[1] for name, described in FULL),
        graph_case("6 operators, alike", ((_SMALL,) * 6, 8, 16, ())),
        graph_case("large activations first, large weights last", ((*[_LARGE] * 3, *[_SMALL] * 3), 8, 8, ())),
        graph_case("unlike operators on 4 GPUs", (((8.0, 8.0, 16.0), (2.0, 2048.0, 4.0), (2.0, 64.0, 4.0),
                                                   (4.0, 512.0, 64.0), (8.0, 64.0, 16.0)), 4, 32, (3,))),
    ),
    hints=(
        "Take one level at a time. If you knew what operators first to last take at least on so many GPUs, for every "
        "first, last and number of GPUs, how would you cut the row into stages?",
        "Below: within a stage, keep for each way of the operators that are still read the least time so far. Above: "
        "fix how slow the slowest stage may be; by operators and GPUs used so far keep the least sum. Try every limit.",
        "for limit in sorted times: least = {(0, 0): (0.0, [])}; for every first, last, gpus within the limit, and "
        "every used: least[last + 1, used + gpus] from least[first, used]; then least[count, num_gpus] + (M - 1) * "
        "limit.",
    ),
    distributed=False,
    challenge=Challenge("ms", score, pars, plan="plan", reference="Alpa"),
)  # fmt: skip
