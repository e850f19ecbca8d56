"""Wrong answers to deal_layers, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


def dealt(name: str, mistake: str, body: str) -> None:
    WRONG.wrong(name, mistake, f"def deal_layers(seconds, num_layers, num_microbatches):\n{body}")


def best_by(key: str) -> str:
    return f"""
    ways = {{0: []}}
    for row in seconds:
        after = {{}}
        for done, layers in ways.items():
            for n in range(1, min(len(row), num_layers - done) + 1):
                way = [*layers, n]
                times = [each[m - 1] for each, m in zip(seconds, way)]
                old = after.get(done + n)
                if old is None or {key} < old[0]:
                    after[done + n] = ({key}, way)
        ways = {{done: way for done, (_, way) in after.items()}}
    return ways[num_layers]
"""


dealt("no list", "no list", "    return {stage: num_layers // len(seconds) for stage in range(len(seconds))}\n")
dealt("loses the rest", "layers lost", "    return [num_layers // len(seconds)] * len(seconds)\n")
dealt(
    "all but one each on the first stage", "does not fit",
    "    return [num_layers - len(seconds) + 1] + [1] * (len(seconds) - 1)\n",
)  # fmt: skip
dealt(
    "as many each", "equal stages",
    "    each, rest = divmod(num_layers, len(seconds))\n"
    "    return [each + (stage < rest) for stage in range(len(seconds))]\n",
)  # fmt: skip
dealt("least sum", "the sum alone", best_by("sum(times)"))
dealt(
    "shortest step so far", "one way for each number of layers",
    best_by("sum(times) + (num_microbatches - 1) * max(times)"),
)  # fmt: skip
dealt("fastest slowest stage", "the slowest stage alone", best_by("max(times)"))
dealt(
    "one by one", "one layer at a time",
    """
    layers = [1] * len(seconds)
    for _ in range(num_layers - len(layers)):
        room = [stage for stage, row in enumerate(seconds) if layers[stage] < len(row)]
        layers[min(room, key=lambda stage: seconds[stage][layers[stage]])] += 1
    return layers
""",
)  # fmt: skip
EACH_LIMIT = """
def deal_layers(seconds, num_layers, num_microbatches):
    from functools import cache

    def within(limit):
        @cache
        def rest(stage, left):
            if stage == len(seconds):
                return (0.0, ()) if left == 0 else (float("inf"), ())
            found = [(float("inf"), ())]
            for n, time in enumerate(seconds[stage][:left], 1):
                if time <= limit:
                    total, layers = rest(stage + 1, left - n)
                    found.append((total + time, (n, *layers)))
            return min(found)

        return rest(0, num_layers)

    tries = [(within(limit), limit) for limit in {time for row in seconds for time in row}]
    return list(min(tries, key=lambda each: each[0][0] + (num_microbatches - 1) * each[1])[0][1])
"""
WRONG.right("by sums for each limit", EACH_LIMIT)
WRONG.wrong(
    "as often as microbatches", "the slowest stage once too often",
    EACH_LIMIT.replace("(num_microbatches - 1)", "num_microbatches"),
)  # fmt: skip
WRONG.wrong(
    "stops where a limit makes the step longer", "the slowest stage once too often",
    EACH_LIMIT.replace(
        "    tries = [(within(limit), limit) for limit in {time for row in seconds for time in row}]\n",
        """    tries = []
    for limit in sorted({time for row in seconds for time in row}):
        tries.append((within(limit), limit))
        steps = [each[0][0] + (num_microbatches - 1) * each[1] for each in tries if each[0][1]]
        if steps and steps[-1] > min(steps):
            break
""",
    ),
)  # fmt: skip
WRONG.wrong(
    "leaves a stage without layers", "layers lost",
    EACH_LIMIT.replace("enumerate(seconds[stage][:left], 1)", "enumerate([0.0, *seconds[stage][:left]])"),
)  # fmt: skip
WRONG.wrong(
    "as if each layer took as long as the first", "times taken for even",
    """
def deal_layers(seconds, num_layers, num_microbatches):
    even = [[row[0] * n for n in range(1, len(row) + 1)] for row in seconds]
    return best_of(even, num_layers, num_microbatches)


"""
    + EACH_LIMIT.replace("def deal_layers", "def best_of").lstrip(),
)  # fmt: skip
dealt(
    "where the step grows least",
    "one layer at a time",
    """    def step(layers):
        times = [row[n - 1] for row, n in zip(seconds, layers)]
        return sum(times) + (num_microbatches - 1) * max(times)

    layers = [1] * len(seconds)
    while sum(layers) < num_layers:
        room = [s for s in range(len(layers)) if layers[s] < len(seconds[s])]
        layers = min(([n + (s == each) for each, n in enumerate(layers)] for s in room), key=step)
    return layers
""",
)
dealt(
    "moves layers while it helps",
    "no single move helps",
    """    def step(layers):
        times = [row[n - 1] for row, n in zip(seconds, layers)]
        return sum(times) + (num_microbatches - 1) * max(times)

    layers = [1] * len(seconds)
    while sum(layers) < num_layers:
        room = [s for s in range(len(layers)) if layers[s] < len(seconds[s])]
        layers[min(room, key=lambda s: layers[s])] += 1
    while True:
        tries = [layers]
        for giver in range(len(layers)):
            for taker in range(len(layers)):
                new = [n - (s == giver) + (s == taker) for s, n in enumerate(layers)]
                if new[giver] >= 1 and new[taker] <= len(seconds[taker]):
                    tries.append(new)
        best = min(tries, key=step)
        if step(best) >= step(layers):
            return layers
        layers = best
""",
)
dealt(
    "looks up one entry on",
    "one entry on",
    """    from itertools import product

    best, least = [], float("inf")
    for layers in product(*(range(1, len(row)) for row in seconds)):
        times = [row[n] for row, n in zip(seconds, layers)]
        took = sum(times) + (num_microbatches - 1) * max(times)
        if sum(layers) == num_layers and took < least:
            best, least = list(layers), took
    return best or [num_layers - len(seconds) + 1] + [1] * (len(seconds) - 1)
""",
)
