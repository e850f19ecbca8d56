"""Wrong answers to recompute_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


plan = WRONG.within("""
def recompute_plan(sizes_mb, times_us, limit_mb):
    ...
""")

plan("everything is kept", "too much kept", "return list(range(len(sizes_mb)))")
plan("nothing is kept", "nothing kept", "return []")
plan("the ends alone", "too much between", "return [0, len(sizes_mb) - 1]")
plan(
    "from the end to the start",
    "not ascending",
    "return sorted(range(len(sizes_mb)), key=lambda each: sizes_mb[each] / times_us[each])[: len(sizes_mb) // 4][::-1]",
)
plan("counted from one", "no such tensor", "return list(range(1, len(sizes_mb) + 1, 3)) + [len(sizes_mb)]")
plan(
    "the sum of what is kept alone",
    "too much between",
    """kept, held = [], 0
for each in sorted(range(len(sizes_mb)), key=lambda each: sizes_mb[each] / times_us[each]):
    if held + sizes_mb[each] <= 0.9 * limit_mb:
        kept, held = sorted([*kept, each]), held + sizes_mb[each]
return kept""",
)
plan("a flag for each", "flags, not indices", "return [size < 500 for size in sizes_mb]")
plan("no return", "nothing returned", "kept = list(range(len(sizes_mb)))")
WRONG.changed(
    "lists what it drops",
    "the tensors that are dropped",
    ("return list(best[1])", "return [each for each in range(count) if each not in best[1]]"),
)
WRONG.changed(
    "one tensor of a stretch at a time",
    "too much between",
    ("sum(sizes_mb[last + 1 : following]) > limit_mb", "max(sizes_mb[last + 1 : following], default=0) > limit_mb"),
)
WRONG.changed(
    "the fastest way to each tensor",
    "nothing kept",
    (
        "        for way in sorted(ways.get(last, [])):",
        "        for way in sorted(ways.get(last, []), key=lambda way: way[1])[:1]:",
    ),
)
