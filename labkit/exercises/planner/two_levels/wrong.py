"""Wrong answers to two_levels, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


def plans(name: str, mistake: str, what: str) -> None:
    WRONG.wrong(name, mistake, f"def two_levels(graph):\n    return {what}\n")


plans("a tuple for a stage", "no plan", "[(graph.num_gpus, [0] * len(graph.seconds))]")
plans("one way for all", "no plan", "[Stage(graph.num_gpus, 0)]")
plans("three GPUs", "no such submesh", "[Stage(3, [0] * len(graph.seconds))]")
plans("ways from 1", "no such way", "[Stage(graph.num_gpus, [3] * len(graph.seconds))]")
plans("loses the rest", "operators lost", "[Stage(graph.num_gpus // 2, [0] * (len(graph.seconds) // 4))] * 2")
plans("a stage on all GPUs each", "not all GPUs", "[Stage(graph.num_gpus, [0]) for _ in graph.seconds]")
plans("half of the GPUs", "not all GPUs", "[Stage(graph.num_gpus // 2, [0] * len(graph.seconds))]")
WRONG.right(
    "every way of a stage, then from the last operator",
    """
def two_levels(graph):
    from functools import cache
    from itertools import product

    count, sizes = len(graph.seconds), list(graph.seconds[0])
    cheapest = {}
    for first in range(count):
        for last in range(first, count):
            for gpus in sizes:
                stages = (Stage(gpus, ways) for ways in product(range(3), repeat=last - first + 1))
                cheapest[first, last, gpus] = min(
                    ((stage_seconds(graph, first, stage), stage) for stage in stages), key=lambda each: each[0]
                )

    def within(limit):
        @cache
        def rest(first, left):
            if first == count:
                return (0.0, []) if left == 0 else (float("inf"), [])
            found = (float("inf"), [])
            for last in range(first, count):
                for gpus in sizes:
                    seconds, stage = cheapest[first, last, gpus]
                    if gpus <= left and seconds <= limit:
                        more, stages = rest(last + 1, left - gpus)
                        if seconds + more < found[0]:
                            found = (seconds + more, [stage, *stages])
            return found

        return rest(0, graph.num_gpus)

    best = (float("inf"), [])
    for limit in sorted({seconds for seconds, _ in cheapest.values()}):
        if (graph.num_microbatches - 1) * limit >= best[0]:
            break
        total, stages = within(limit)
        if total + (graph.num_microbatches - 1) * limit < best[0]:
            best = (total + (graph.num_microbatches - 1) * limit, stages)
    return best[1]
""",
)
