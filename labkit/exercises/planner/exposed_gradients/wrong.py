"""Wrong answers to exposed_gradients, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

REST = "    return done - now\n"
changed("adds all buckets", "nothing hidden", (REST, "    return sum(takes)\n"))
changed("one subtraction", "hidden before it is ready", (REST, "    return max(0.0, sum(takes) - sum(computing))\n"))
changed("the last bucket", "the last bucket alone", (REST, "    return takes[-1]\n"))
changed("no queue", "all at once", ("done = max(now, done) + travels", "done = max(done, now + travels)"))
changed(
    "each by the next layer", "one layer each",
    (REST, "    return sum(max(0.0, t - c) for t, c in zip(takes, [*computing[1:], 0.0], strict=True))\n"),
)  # fmt: skip
changed("when it ends", "the end, not the rest", (REST, "    return done\n"))
changed(
    "what travels less what hides it", "one queue from the start",
    (REST, "    return max(takes[-1], sum(takes) - sum(computing[1:]))\n"),
)  # fmt: skip
changed(
    "all less what follows the first", "one queue from the start",
    (REST, "    return max(0, sum(takes) - sum(computing[1:]))\n"),
)  # fmt: skip
changed(
    "each by its own layer", "its own layer",
    (REST, "    return sum(max(0.0, t - c) for t, c in zip(takes, computing, strict=True))\n"),
)  # fmt: skip
changed(
    "less all that is computed", "the first layer hides",
    (REST, "    return max(takes[-1], sum(takes) - sum(computing))\n"),
)  # fmt: skip
changed(
    "backward waits for each", "the last bucket alone",
    ("        now += computed\n", "        now = max(now + computed, done)\n"),
)  # fmt: skip
changed(
    "gaps without the last", "no last bucket",
    (REST, "    return sum(max(0.0, t - c) for t, c in zip(takes, computing[1:]))\n"),
)  # fmt: skip
changed("no max", "less than nothing", (REST, "    return sum(takes) - 2 * sum(computing)\n"))
WRONG.wrong("prints", "no number", "def exposed_seconds(computing, takes):\n    print(takes)\n")
changed("each its own layer hides", "its own layer",
        (REST, "    left = 0.0\n    for computed, travels in zip(computing, takes):\n"
               "        left = max(0.0, left + travels - computed)\n    return left\n"))  # fmt: skip
WRONG.right(
    "what is left of a bucket",
    """
def exposed_seconds(computing, takes):
    left = 0.0
    for computed, travels in zip(computing, takes):
        left = max(0.0, left - computed) + travels
    return left
""",
)
changed("takes one list for the other", "lists swapped", ("zip(computing, takes,", "zip(takes, computing,"))
changed("looks at one list", "lists swapped", ("zip(computing, takes,", "zip(computing, computing,"))
changed("forgets what was computed before", "computing not added up", ("now += computed", "now = computed"))
changed("returns the wrong end", "how long is computed", (REST, "    return now\n"))
WRONG.changed("returns in the loop", "the first bucket alone", ("    return done - now", "        return done - now"))
changed("subtracts one backward", "the last backward alone subtracted", ("done - now", "done - computed"))
WRONG.changed("subtracts the end from itself", "always nothing", ("done - now", "done - done"))
WRONG.changed("takes what is computed off", "time runs backwards", ("now += computed", "now -= computed"))
WRONG.changed(
    "from the last on", "from the last on",
    ("zip(computing, takes, strict=True)", "zip(reversed(computing), reversed(takes), strict=True)"),
)  # fmt: skip
WRONG.changed(
    "leaves before its layer is done", "less than nothing",
    ("        now += computed\n        done = max(now, done) + travels\n",
     "        done = max(now, done) + travels\n        now += computed\n"),
)  # fmt: skip
