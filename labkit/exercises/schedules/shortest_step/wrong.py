"""Wrong answers to shortest_step, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong

plan = WRONG.within("""
def shortest_step(num_stages, num_microbatches, most_held):
    P, M, L = num_stages, num_microbatches, most_held
    ...
""")

EACH = 'return "{}", [[f"{{k}}{{m}}" for m in range(M) for k in "{}"] for s in range(P)]'
plan("orders alone", "no placement and orders", 'return [["F0", "B0"] for s in range(P)]')
plan("a placement of its own", "no such placement", EACH.format("V", "FB"))
plan("one list for all", "no placement and orders", 'return "one", [["F0", "B0"]]')
plan("records", "no such work", 'return "one", [[("F", m) for m in range(M)] for s in range(P)]')
plan("two chunks in one", "a second chunk in one", 'return "one", [[f"F{m}.1" for m in range(M)] for s in range(P)]')
plan("one chunk in a v", "work left out", EACH.format("v", "FB"))
plan("weights never", "work left out", EACH.format("one", "FI"))
plan("backward three times", "backward whole and in parts", EACH.format("one", "FBIW"))
plan("weights before inputs", "nobody can go on", EACH.format("one", "FWI"))
plan("twice", "work twice", EACH.format("one", "FBB"))
plan("all weights at the end", "holds too much",
     'return "one", [[f"{k}{m}" for m in range(M) for k in "FI"] + [f"W{m}" for m in range(M)] '
     "for s in range(P)]")  # fmt: skip
plan("the way of v on placement round", "nobody can go on", """return "round", [
    [f"F{m}.{c}" for c in (0, 1) for m in range(M)] + [f"B{m}.{c}" for c in (0, 1) for m in range(M)]
    for s in range(P)
]""")  # fmt: skip
plan("no return", "nothing returned", "orders = []")
plan("one word for both chunks", "no such work", EACH.format("v", "FFBB"))
