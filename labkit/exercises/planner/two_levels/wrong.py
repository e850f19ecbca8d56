"""Wrong answers to two_levels, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


plans = WRONG.within("def two_levels(graph):\n    return ...\n")

plans("a tuple for a stage", "no plan", "[(graph.num_gpus, [0] * len(graph.seconds))]")
plans("one way for all", "no plan", "[Stage(graph.num_gpus, 0)]")
plans("three GPUs", "no such submesh", "[Stage(3, [0] * len(graph.seconds))]")
plans("ways from 1", "no such way", "[Stage(graph.num_gpus, [3] * len(graph.seconds))]")
plans("loses the rest", "operators lost", "[Stage(graph.num_gpus // 2, [0] * (len(graph.seconds) // 4))] * 2")
plans("a stage on all GPUs each", "not all GPUs", "[Stage(graph.num_gpus, [0]) for _ in graph.seconds]")
plans("half of the GPUs", "not all GPUs", "[Stage(graph.num_gpus // 2, [0] * len(graph.seconds))]")
changed = WRONG.changed
COMES = "for a, w in known if (a, at) in graph.between)"
ALL = "for a, b in graph.between if b == at and a >= first for w in before[a - first :][:1])"
TRIES = "tries.append((read, "
changed("reads predecessors alone", "no skips", (COMES, COMES[:-1] + " and a == at - 1)"))
changed("knows the last way alone", "last way", (COMES, ALL), (TRIES, "tries.append((((at, way),), "))
changed("operator by operator", "one by one", (COMES, ALL), (TRIES, "tries.append(((), "))
changed("operators' own fastest", "no skips", (
    "for way in range(3):",
    "for way in [min(range(3), key=lambda w: graph.seconds[at][gpus][w])]:",
))  # fmt: skip
changed("nothing between", "no between", ("graph.between[a, at][gpus][w][way] for", "0.0 for"))
LEAST = "total + (graph.num_microbatches - 1) * limit"
changed("the slowest stage alone", "slowest", (LEAST, "total + 1e6 * limit"))
changed("the sum alone", "sum", (LEAST, "total"))
changed("M times the slowest", "one twice", (LEAST, "total + graph.num_microbatches * limit"))
changed("M - 2 times the slowest", "one less", (LEAST, "total + (graph.num_microbatches - 2) * limit"))
changed("none as slow as the limit", "below", ("if seconds <= limit else 0", "if seconds < limit else 0"))
changed(
    "as many GPUs as it likes", "not all GPUs",
    ("least.get((count, graph.num_gpus), (float(\"inf\"), []))",
     "min([each for (done, _), each in least.items() if done == count] or [(float(\"inf\"), [])])"),
)  # fmt: skip
changed("one way a stage", "one way", (
    "def two_levels(",
    """def cheapest(graph, first, last, gpus):
    ways = [(way,) * (last - first + 1) for way in range(3)]
    return min((stage_seconds(graph, first, Stage(gpus, each)), each) for each in ways)


def two_levels(""",
))  # fmt: skip
changed(
    "equal submeshes", "alike",
    ("    for limit in", "    for limit, equal in"),
    ("sorted({seconds for seconds, _ in times.values()})",
     "[(s, g) for g in sizes for s in sorted({s for s, _ in times.values()})]"),
    ("if seconds <= limit else 0", "if seconds <= limit and gpus == equal else 0"),
)  # fmt: skip
WRONG.wrong(
    "stages alike, cut in one way",
    "stages alike",
    """
def two_levels(graph):
    count, found = len(graph.seconds), []
    for gpus in graph.seconds[0]:
        num = graph.num_gpus // gpus
        lengths = [count // num + (at < count % num) for at in range(num)]
        found += [[Stage(gpus, (way,) * each) for each in lengths] for way in range(3) if min(lengths)]

    def step(stages):
        took, first = [], 0
        for stage in stages:
            took.append(stage_seconds(graph, first, stage))
            first += len(stage.ways)
        return sum(took) + (graph.num_microbatches - 1) * max(took)

    return min(found, key=step)
""",
)
EVERY_WAY = """
def every_way(graph, first, last, gpus):
    from itertools import product

    ways = product(range(3), repeat=last - first + 1)
    return min((stage_seconds(graph, first, Stage(gpus, each)), each) for each in ways)


def two_levels("""
changed(
    "every way of a stage", "tries every way",
    ("def two_levels(", EVERY_WAY), (": cheapest(graph, first, last, gpus)", ": every_way(graph, first, last, gpus)"),
)  # fmt: skip
WRONG.right(
    "from the last operator",
    """
def two_levels(graph):
    from functools import cache

    count, sizes = len(graph.seconds), list(graph.seconds[0])
    fastest = {
        (first, last, gpus): cheapest(graph, first, last, gpus)
        for first in range(count) for last in range(first, count) for gpus in sizes
    }

    def within(limit):
        @cache
        def rest(first, left):
            if first == count:
                return (0.0, []) if left == 0 else (float("inf"), [])
            found = (float("inf"), [])
            for last in range(first, count):
                for gpus in sizes:
                    seconds, ways = fastest[first, last, gpus]
                    if gpus <= left and seconds <= limit:
                        more, stages = rest(last + 1, left - gpus)
                        if seconds + more < found[0]:
                            found = (seconds + more, [Stage(gpus, ways), *stages])
            return found

        return rest(0, graph.num_gpus)

    best = (float("inf"), [])
    for limit in sorted({seconds for seconds, _ in fastest.values()}):
        if (graph.num_microbatches - 1) * limit >= best[0]:
            break
        total, stages = within(limit)
        if total + (graph.num_microbatches - 1) * limit < best[0]:
            best = (total + (graph.num_microbatches - 1) * limit, stages)
    return best[1]
""",
)
COUNT = "    count, sizes = len(graph.seconds), list(graph.seconds[0])\n"
changed("one stage of all", "one stage", (
    COUNT, COUNT + "    return [Stage(graph.num_gpus, cheapest(graph, 0, count - 1, graph.num_gpus)[1])]\n"
))  # fmt: skip
changed("two equal halves", "cut evenly", (
    COUNT,
    COUNT + "    half = graph.num_gpus // 2\n"
    "    ends = [(0, count // 2 - 1), (count // 2, count - 1)]\n"
    "    return [Stage(half, cheapest(graph, *each, half)[1]) for each in ends]\n",
))  # fmt: skip
