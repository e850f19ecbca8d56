"""What of the gradients' traffic nothing hides: buckets that queue behind backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from labkit.checks.case import Case, Got
from labkit.checks.declared import Mistake, declared
from labkit.checks.structure import ANYTHING
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.planner import costs
from labkit.exercises.planner.exposed_gradients.driver import drive
from labkit.exercises.planner.looks import NO_NUMBER, numbers_look

Buckets = tuple[list[float], list[float]]
Exposed = Callable[[Sequence[float], Sequence[float]], float]


def buckets_case(name: str, *buckets: Buckets) -> Case:
    """Return a case: buckets by what is computed before each, and how long each travels."""
    return Case(name, 1, ({"buckets": [list(each) for each in buckets]},))


def _way(way: Exposed) -> Callable[[Case], list[float]]:
    return lambda case: [way(*each) for each in listed(case.inputs[0], "buckets")]


def _all_at_once(computing: Sequence[float], takes: Sequence[float]) -> float:
    ready = [sum(computing[: at + 1]) for at in range(len(computing))]
    return max(0.0, max(at + each for at, each in zip(ready, takes, strict=True)) - sum(computing))


def _one_layer_each(computing: Sequence[float], takes: Sequence[float]) -> float:
    return sum(max(0.0, each - hides) for each, hides in zip(takes, [*computing[1:], 0.0], strict=True))


def _one_queue(computing: Sequence[float], takes: Sequence[float]) -> float:
    return max(takes[-1], sum(takes) - sum(computing[1:]))


def _own_layer(computing: Sequence[float], takes: Sequence[float]) -> float:
    return sum(max(0.0, each - hides) for each, hides in zip(takes, computing, strict=True))


def _leaves_early(computing: Sequence[float], takes: Sequence[float]) -> float:
    left = 0.0
    for computed, travels in zip(computing, takes, strict=True):
        left = max(0.0, left + travels - computed)
    return left


def _from_the_start(computing: Sequence[float], takes: Sequence[float]) -> float:
    return max(takes[-1], sum(takes) - sum(computing))


def _not_added_up(computing: Sequence[float], takes: Sequence[float]) -> float:
    done = 0.0
    for computed, travels in zip(computing, takes, strict=True):
        done = max(computed, done) + travels
    return done - computing[-1]


def _backwards(computing: Sequence[float], takes: Sequence[float]) -> float:
    now = done = 0.0
    for computed, travels in zip(computing, takes, strict=True):
        now -= computed
        done = max(now, done) + travels
    return done - now


def _all_but_the_last(computing: Sequence[float], takes: Sequence[float]) -> float:
    return sum(max(0.0, each - hides) for each, hides in zip(takes, computing[1:], strict=False))


def _from_the_last(computing: Sequence[float], takes: Sequence[float]) -> float:
    return costs.exposed_seconds(computing[::-1], takes[::-1])


def _negative(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether an exposed time is less than nothing."""
    came = got[0].get("buckets") if isinstance(got, tuple) else None
    return isinstance(came, list) and any(isinstance(each, float) and each < 0 for each in came)


def _one_subtracted(computing: Sequence[float], takes: Sequence[float]) -> float:
    return costs.exposed_seconds(computing, takes) + sum(computing[:-1])


MISTAKES = (
    NO_NUMBER,
    Mistake("the last backward alone subtracted",
            "You subtract the last backward alone. What is exposed comes after all of them: subtract their sum.",
            {"buckets": _way(_one_subtracted)}),
    Mistake("nothing hidden", "A bucket travels while the next layer is computed; only the rest is exposed.",
            {"buckets": _way(lambda computing, takes: sum(takes))}),
    Mistake("hidden before it is ready",
            "A bucket cannot leave before its layer is computed. The last one leaves when all is computed: nothing "
            "hides it.", {"buckets": _way(lambda computing, takes: max(0.0, sum(takes) - sum(computing)))}),
    Mistake("one queue from the start",
            "That holds while buckets queue from the first on. Where one finds the line free, what was computed before "
            "hides nothing of those behind it.", {"buckets": (
                _way(_one_queue), _way(lambda computing, takes: max(0.0, sum(takes) - sum(computing[1:])))
            )}),
    Mistake("its own layer", "A bucket is not there while its own layer is computed: only later layers hide it.",
            {"buckets": (_way(_own_layer), _way(_leaves_early))}),
    Mistake("the last bucket alone",
            "That is the last bucket alone, as if backward waited for each one. It goes on: where a bucket takes "
            "longer than the next layer's backward, those behind it queue.",
            {"buckets": _way(lambda computing, takes: takes[-1])}),
    Mistake("the first bucket alone",
            "That is the first bucket alone: go on to the last, and only then subtract when all was computed.",
            {"buckets": _way(lambda computing, takes: takes[0])}),
    Mistake("all at once", "Buckets follow one another: one leaves when it is ready *and* the one before is through.",
            {"buckets": _way(_all_at_once)}),
    Mistake("one layer each", "What one layer's backward does not hide, a later one can: buckets that queue catch up.",
            {"buckets": _way(_one_layer_each)}),
    Mistake("the first layer hides", "While the first layer is computed no bucket is there yet: it hides nothing.",
            {"buckets": _way(_from_the_start)}),
    Mistake("no last bucket", "The last bucket leaves when all is computed: nothing hides it.",
            {"buckets": _way(_all_but_the_last)}),
    Mistake("from the last on", "The lists are in the order in which backward makes buckets ready: the first one "
            "leaves first.", {"buckets": _way(_from_the_last)}),
    Mistake("less than nothing",
            "Less than nothing cannot travel after backward: a bucket is through only after it was ready, and then "
            "backward had already computed all before it. No layer hides more of a bucket than there is.",
            seen=_negative),
    Mistake("always nothing", "You return 0 whatever is given, and the last bucket is never hidden: subtract when all "
            "was computed from when the last bucket is through.", {"buckets": _way(lambda computing, takes: 0.0)}),
    Mistake("lists swapped", "You take one list for the other: computing is what makes a bucket ready, takes is how "
            "long it travels.", {"buckets": (
                _way(lambda computing, takes: costs.exposed_seconds(takes, computing)),
                _way(lambda computing, takes: costs.exposed_seconds(computing, computing)),
                _way(lambda computing, takes: costs.exposed_seconds(takes, takes)),
            )}),
    Mistake("computing not added up", "Backward's parts run one after the other: a bucket is ready after all that is "
            "computed up to it.", {"buckets": _way(_not_added_up)}),
    Mistake("time runs backwards", "What is computed is taken off the time: each part comes after the one before, so "
            "the time grows by it.", {"buckets": _way(_backwards)}),
    Mistake("how long is computed", "That is how long is computed in all, and not how long buckets travel after it.",
            {"buckets": _way(lambda computing, takes: sum(computing))}),
    Mistake("the end, not the rest", "Return how long buckets travel *after* all is computed: subtract that time.",
            {"buckets": _way(lambda computing, takes: costs.exposed_seconds(computing, takes) + sum(computing))}),
)  # fmt: skip

EXERCISE = declared(
    id="exposed_gradients",
    functions=("exposed_seconds",),
    driver=drive,
    oracle=lambda case: [{"buckets": _way(costs.exposed_seconds)(case)}],
    structure=lambda case: [{"buckets": ANYTHING}],
    looks=(
        numbers_look("buckets", "exposed_seconds", _way(costs.exposed_seconds),
                     lambda case, place: "{}, {}".format(*listed(case.inputs[0], "buckets")[place]), MISTAKES,
                     unit=1.0, sign="s"),
    ),
    mistakes=MISTAKES,
    visible=(
        buckets_case("two and three buckets", ([3.0, 3.0, 3.0], [1.0, 1.0, 1.0]), ([1.0, 1.0], [3.0, 1.0]),
                     ([1.0, 1.0, 5.0], [3.0, 1.0, 1.0]), ([2.0, 1.0, 1.0], [1.0, 4.0, 3.0])),
        buckets_case("long ones", ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]), ([4.0, 1.0, 0.0], [1.0, 3.0, 2.0])),
        buckets_case("a queue after a pause", ([1.0, 10.0, 1.0], [1.0, 3.0, 3.0]), ([1.0, 2.0, 1.0], [1.0, 3.0, 2.0])),
        buckets_case("a single one", ([5.0], [0.5])),
    ),
    hints=(
        "Draw two lines: what is computed, and what travels. When does each bucket leave, when is it through?",
        "A bucket is through at max(when it is ready, when the one before is through) + what it takes.",
        "now += computed; done = max(now, done) + travels; at the end done - now.",
    ),
    distributed=False,
)  # fmt: skip
