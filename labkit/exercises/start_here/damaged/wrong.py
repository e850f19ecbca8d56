"""Wrong answers to damaged, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


wrong = WRONG.within("def damaged(before, after):\n    ...\n")

wrong(
    "all that differ",
    "dropped counted as damaged",
    "return (after != before).nonzero().flatten().tolist()",
)
wrong(
    "compares magnitudes",
    "magnitudes compared",
    "return ((after != 0) & (after.abs() != before.abs())).nonzero().flatten().tolist()",
)
wrong(
    "looks at signs",
    "signs alone",
    "return (after * before < 0).nonzero().flatten().tolist()",
)
wrong("counts", "a count instead of places", "return int(((after != 0) & (after != before)).sum())")
wrong("a mask", "a tensor or flags instead of places", "return ((after != 0) & (after != before)).tolist()")
wrong("a tensor", "a tensor or flags instead of places", "return ((after != 0) & (after != before)).nonzero()")
WRONG.wrong("prints", "returns nothing", "def damaged(before, after):\n    print((after != before).nonzero())\n")
wrong(
    "isclose for equal",
    "compared with a tolerance",
    "return ((after != 0) & ~torch.isclose(after, before, rtol=1e-3)).nonzero().flatten().tolist()",
)
wrong(
    "as good as equal",
    "compared with a tolerance",
    "return ((after != 0) & ~torch.isclose(after, before)).nonzero().flatten().tolist()",
)
wrong(
    "what was 0 before cannot be damaged",
    "zeros left out",
    "return ((before != 0) & (after != 0) & (after != before)).nonzero().flatten().tolist()",
)
wrong(
    "the worst first",
    "not in order",
    "found = ((after != 0) & (after != before)).nonzero().flatten()\n"
    "return found[(after - before).abs()[found].argsort(descending=True)].tolist()",
)
wrong(
    "a one for each that is damaged",
    "a tensor or flags instead of places",
    "return ((after != 0) & (after != before)).int().tolist()",
)
wrong(
    "equal up to a millionth",
    "compared with a tolerance",
    "return [at for at, (b, a) in enumerate(zip(before.tolist(), after.tolist())) if a and abs(a - b) > 1e-6]",
)
wrong(
    "almost 0 is dropped",
    "small entries taken for dropped",
    "return ((after.abs() > 1e-3) & (after != before)).nonzero().flatten().tolist()",
)
wrong(
    "what has grown",
    "only what has grown",
    "return ((after != 0) & (after > before)).nonzero().flatten().tolist()",
)
wrong(
    "looks at the kept ones alone",
    "places among the kept",
    "kept = after.nonzero().flatten()\nreturn (after[kept] != before[kept]).nonzero().flatten().tolist()",
)
wrong(
    "squeezes",
    "a list of one made a number",
    "return ((after != 0) & (after != before)).nonzero().squeeze().tolist()",
)
wrong("all that was kept", "all that was kept", "return after.nonzero().flatten().tolist()")
wrong(
    "what has shrunk",
    "only what has shrunk",
    "return ((after != 0) & (after.abs() < before.abs())).nonzero().flatten().tolist()",
)
wrong(
    "looks for values anywhere",
    "values that stood elsewhere",
    "known = set(before.tolist())\n"
    "return [at for at, value in enumerate(after.tolist()) if value and value not in known]",
)
