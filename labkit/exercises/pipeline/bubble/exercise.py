"""bubble: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.checks.case import Case
from labkit.checks.declared import Mistake
from labkit.checks.formulas import Call, calls_case, formulas
from labkit.checks.how_off import one_at_a_time
from labkit.exercises.pipeline.bubble.driver import drive
from labkit.exercises.pipeline.bubble_costs import COUNTED


def bubble_case(name: str, pipelines: Sequence[tuple[int, int]], batch_seconds: float, overhead_s: float) -> Case:
    """Return a case of bubble: (stages, microbatches) for both functions."""
    calls: list[Call] = []
    for stages, count in pipelines:
        calls += [
            ("bubble_share", (stages, count)),
            ("step_seconds", (stages, count, batch_seconds, overhead_s)),
        ]
    return calls_case(name, calls)


def _doubled_case(name: str, stages: int, count: int, batch_seconds: float, overhead_s: float) -> Case:
    """Return the case in which each argument is doubled in turn."""
    calls: list[Call] = [("bubble_share", each) for each in one_at_a_time(stages, count)]
    calls += [("step_seconds", each) for each in one_at_a_time(stages, count, batch_seconds, overhead_s)]
    return calls_case(name, calls)


EXERCISE = formulas(
    id="bubble",
    functions=("bubble_share", "step_seconds"),
    driver=drive,
    counted=COUNTED,
    visible=(
        _doubled_case("4 stages, 8 microbatches; then each number doubled", 4, 8, 0.8, 0.01),
        bubble_case("2 stages, 1 microbatch", [(2, 1)], 0.8, 0.01),
        bubble_case("3 stages, 7 microbatches; one stage", [(3, 7), (1, 5)], 0.35, 0.002),
    ),
    hints=(
        "Draw three stages and four microbatches, one box per turn. How many columns does the picture have, and how "
        "many boxes are in each row?",
        "M boxes in each row, and the last row begins P-1 turns later: M + P - 1 turns. A turn lasts one microbatch's "
        "share of the batch, plus its overhead.",
        "(P - 1) / (M + P - 1); and (M + P - 1) * (batch_seconds / M + overhead_s).",
    ),
    mistakes=(
        Mistake("waiting over working time",
                "bubble_share divides the waiting by the working time; divide by all turns, M + P - 1.",
                {"bubble_share": lambda p, m: (p - 1) / m}),
        Mistake("the last stage does not wait so long",
                "bubble_share counts P turns of waiting: the last stage begins P-1 turns after the first.",
                {"bubble_share": lambda p, m: p / (m + p)}),
        Mistake("forward and backward wait apart",
                "bubble_share counts 2(P-1) turns of waiting beside M of work. Where forward and backward are counted "
                "apart, both double: 2(P-1) of waiting in 2(M + P - 1) turns.",
                {"bubble_share": lambda p, m: 2 * (p - 1) / (m + 2 * (p - 1))}),
        Mistake("two ramps beside one pass",
                "step_seconds counts 2(P-1) turns of waiting. A turn is forward and backward of a microbatch together, "
                "and P-1 of them pass before the last stage begins.",
                {"step_seconds": lambda p, m, t, o: (m + 2 * (p - 1)) * (t / m + o)}),
        Mistake("overhead left out", "step_seconds has no overhead in it: every turn pays it.",
                {"step_seconds": lambda p, m, t, o: (m + p - 1) * t / m}),
        Mistake("the batch shared by the stages",
                "step_seconds divides batch_seconds by the stages. It is the time of the whole batch on one stage: "
                "only the microbatches share it.", {"step_seconds": lambda p, m, t, o: (m + p - 1) * (t / m / p + o)}),
        Mistake("the waiting of all stages together",
                "bubble_share adds up the waiting of all stages, and divides it by the turns of one. Every stage waits "
                "P-1 of M + P - 1 turns.", {"bubble_share": lambda p, m: p * (p - 1) / (m + p - 1)}),
        Mistake("no pipeline at all",
                "That is the waiting where one stage works at a time. With M microbatches the stages work at the same "
                "time, but for P-1 turns.",
                {"bubble_share": lambda p, m: 1 - 1 / p, "step_seconds": lambda p, m, t, o: m * p * (t / m + o)}),
        Mistake("the share of work", "bubble_share is the share of work; the bubble is the rest, 1 minus that.",
                {"bubble_share": lambda p, m: m / (m + p - 1)}),
        Mistake("bubble forgotten", "step_seconds counts M turns; the last stage is done after M + P - 1.",
                {"step_seconds": lambda p, m, t, o: m * (t / m + o)}),
        Mistake("overhead counted once", "step_seconds counts the overhead once; every turn pays it.",
                {"step_seconds": lambda p, m, t, o: (m + p - 1) * t / m + o}),
        Mistake("overhead for work alone",
                "step_seconds pays the overhead M times; a turn lasts t/M plus the overhead, and there are M + P - 1 "
                "turns.", {"step_seconds": lambda p, m, t, o: (m + p - 1) * t / m + m * o}),
        Mistake("whole batch in each turn",
                "step_seconds lets each turn last a whole batch; a microbatch is 1/M of it.",
                {"step_seconds": lambda p, m, t, o: (m + p - 1) * (t + o)}),
        Mistake("a share in per cent", "bubble_share is a fraction of 1, not of 100.",
                {"bubble_share": lambda p, m: 100 * (p - 1) / (m + p - 1)}),
        Mistake("divided without a rest", "// drops what is behind the point, and a share is less than 1: divide by /.",
                {"bubble_share": lambda p, m: (p - 1) // (m + p - 1)}),
        Mistake("stages for microbatches",
                "Stages and microbatches are exchanged: each of P stages waits P-1 turns, and works M.",
                {"bubble_share": lambda p, m: (m - 1) / (m + p - 1),
                 "step_seconds": lambda p, m, t, o: (m + p - 1) * (t / p + o)}),
        Mistake("half of the batch's time",
                "step_seconds halves batch_seconds. It is forward and backward together, and so is a turn.",
                {"step_seconds": lambda p, m, t, o: (m + p - 1) * (t / m / 2 + o)}),
        Mistake("a turn too many in all",
                "bubble_share divides by M + P turns. The last stage begins after P-1 turns, so there are M + P - 1 of "
                "them.", {"bubble_share": lambda p, m: (p - 1) / (m + p)}),
        Mistake("the waiting of forward alone",
                "bubble_share counts the turns of forward and of backward, but the waiting of forward alone. Backward "
                "waits in the same proportion.",
                {"bubble_share": (lambda p, m: (p - 1) / (2 * m + p - 1), lambda p, m: (p - 1) / (3 * m + p - 1),
                                  lambda p, m: (p - 1) / (2 * (m + p - 1)))}),
        Mistake("backward counted again",
                "step_seconds doubles its turns for backward. batch_seconds and overhead_s are for forward and "
                "backward together.", {"step_seconds": lambda p, m, t, o: 2 * (m + p - 1) * (t / m + o)}),
        Mistake("overhead counted again",
                "step_seconds pays the overhead twice. overhead_s is for forward and backward together.",
                {"step_seconds": lambda p, m, t, o: (m + p - 1) * (t / m + 2 * o)}),
        Mistake("the overhead of all stages",
                "step_seconds adds up the overhead of all stages. They pay it side by side, each in its own turn: a "
                "turn lasts t/M plus one overhead.",
                {"step_seconds": (lambda p, m, t, o: (m + p - 1) * t / m + p * m * o,
                                  lambda p, m, t, o: (m + p - 1) * t / m + p * o,
                                  lambda p, m, t, o: (m + p - 1) * (t / m + p * o))}),
        Mistake("the bubble on top",
                "step_seconds is the work times 1 + bubble. The bubble is a share of the whole step, not of the work: "
                "the work is 1 - bubble of it.",
                {"step_seconds": (lambda p, m, t, o: (t + m * o) * (1 + (p - 1) / (m + p - 1)),
                                  lambda p, m, t, o: t * (1 + (p - 1) / (m + p - 1)) + m * o,
                                  lambda p, m, t, o: t * (1 + (p - 1) / (m + p - 1)) + (m + p - 1) * o)}),
        Mistake("the time of all stages together",
                "step_seconds multiplies batch_seconds by the stages. They work at the same time, but for P-1 turns.",
                {"step_seconds": (lambda p, m, t, o: (m + p - 1) * (p * t / m + o),
                                  lambda p, m, t, o: (m + p - 1) * p * t / m + m * o,
                                  lambda p, m, t, o: p * (m + p - 1) * (t / m + o))}),
        Mistake("P turns of waiting", "step_seconds counts M + P turns: when the last stage begins, P-1 have passed.",
                {"step_seconds": lambda p, m, t, o: (m + p) * (t / m + o)}),
    ),
)  # fmt: skip
