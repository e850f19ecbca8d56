"""Wrong answers to fill_stages, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong

plan = WRONG.within("""
def fill_stages(num_stages, num_microbatches, most_held):
    P, M, L = num_stages, num_microbatches, most_held
    ...
""")

GROUPS = "[c(m) for g in range(0, M, L) for c in (Forward, Backward) for m in range(g, min(g + L, M))]"
plan("GPipe whatever the limit", "holds too much", GROUPS.replace("range(0, M, L)", "[0]").replace(
    "min(g + L, M)", "M").join(["return [", " for stage in range(P)]"]))  # fmt: skip
plan("the last group is lost", "work left out",
     f"return [{GROUPS.replace('range(0, M, L)', 'range(0, M - L, L)')} for stage in range(P)]")  # fmt: skip
plan("one more than there are", "work that is not there",
     "return [[c(m) for m in range(M + 1) for c in (Forward, Backward)] for stage in range(P)]")  # fmt: skip
plan("one stage's list", "not a list of records", f"return {GROUPS}")
plan("lists appended", "not a list of records", """order = []
for m in range(M):
    order.append([Forward(m), Backward(m)])
return [order for stage in range(P)]""")  # fmt: skip
plan("backward first", "nobody can go on",
     "return [[c(m) for m in range(M) for c in (Backward, Forward)] for stage in range(P)]")  # fmt: skip
plan("the last stage turns the order", "nobody can go on",
     "return [[c(m) for m in (range(M) if s < P - 1 else reversed(range(M))) for c in (Forward, Backward)] "
     "for s in range(P)]")  # fmt: skip
plan("the same record twice", "work twice",
     "return [[c(m) for m in range(M) for c in (Forward, Backward, Backward)] for stage in range(P)]")  # fmt: skip
plan("one more than fits", "holds too much",
     f"L = L + 1\nreturn [{GROUPS} for stage in range(P)]")  # fmt: skip
plan("no return", "nothing returned", f"orders = [{GROUPS} for stage in range(P)]")
