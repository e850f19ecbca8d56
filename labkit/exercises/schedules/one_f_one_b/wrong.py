"""Wrong answers to one_f_one_b, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed, wrong = WRONG.changed, WRONG.wrong
AHEAD = "min(num_stages - stage, num_microbatches)"

changed("GPipe again", "that is GPipe", (AHEAD, "num_microbatches"))
changed("no limit", "warm-up not limited", (AHEAD, "num_stages - stage"))
changed("P - s + 1", "warm-up one too long", ("num_stages - stage, ", "num_stages - stage + 1, "))
changed("P - 1 - s", "warm-up one too short", (AHEAD, "max(min(num_stages - 1 - stage, num_microbatches), 1)"))
changed("P everywhere", "the same warm-up everywhere", ("num_stages - stage, ", "num_stages, "))
changed("the stage's number", "the warm-up of the other end", ("num_stages - stage, ", "stage + 1, "))
changed("no cool-down", "cool-down forgotten", (
    "for microbatch in range(num_microbatches):", "for microbatch in range(num_microbatches - ahead):"))  # fmt: skip
changed("one at a time", "the same warm-up everywhere", (AHEAD, "1"))
wrong("counts backwards down", "microbatches out of order", """
def one_f_one_b(stage, num_stages, num_microbatches):
    M = num_microbatches
    return [Forward(m) for m in range(M)] + [Backward(m) for m in reversed(range(M))]
""")  # fmt: skip
wrong("strings", "not a list of records", """
def one_f_one_b(stage, num_stages, num_microbatches):
    return [f"F{m}" for m in range(num_microbatches)] + [f"B{m}" for m in range(num_microbatches)]
""")  # fmt: skip
wrong("no return", "returns nothing", "def one_f_one_b(stage, num_stages, num_microbatches):\n    order = []\n")
changed("backward of the next", "work that is not there", ("Backward(microbatch)", "Backward(microbatch + 1)"))
changed("forwards begin again", "work twice", ("Forward(microbatch + ahead)", "Forward(microbatch)"))
changed("the last forward is lost", "work left out",
        ("if microbatch + ahead < num_microbatches:", "if microbatch + ahead < num_microbatches - 1:"))  # fmt: skip
WRONG.changed(
    "a forward too many",
    "a forward with every backward",
    ("if microbatch + ahead < num_microbatches:", "if microbatch < num_microbatches:"),
)
WRONG.changed("adds the stage", "a warm-up of another length", ("num_stages - stage, ", "num_stages + stage, "))
wrong("turns the newest round first", "microbatches out of order", """
def one_f_one_b(stage, num_stages, num_microbatches):
    order, held = [], []
    for m in range(num_microbatches):
        order.append(Forward(m))
        held.append(m)
        if len(held) >= min(num_stages - stage, num_microbatches):
            order.append(Backward(held.pop()))
    return order + [Backward(m) for m in reversed(held)]
""")  # fmt: skip
wrong("GPipe in groups", "the same warm-up everywhere", """
def one_f_one_b(stage, num_stages, num_microbatches):
    order = []
    for first in range(0, num_microbatches, num_stages):
        group = range(first, min(first + num_stages, num_microbatches))
        order += [Forward(m) for m in group] + [Backward(m) for m in group]
    return order
""")  # fmt: skip
changed("counts stages from 1", "warm-up one too long", ("num_stages - stage, ", "num_stages - (stage - 1), "))
changed("microbatches from 1", "microbatches numbered from 1",
        ("for microbatch in range(ahead)]", "for microbatch in range(1, ahead + 1)]"),
        ("for microbatch in range(num_microbatches):", "for microbatch in range(1, num_microbatches + 1):"),
        ("if microbatch + ahead < num_microbatches:", "if microbatch + ahead <= num_microbatches:"))  # fmt: skip
wrong("yields what it runs", "not a list of records", """
def one_f_one_b(stage, num_stages, num_microbatches):
    ahead = min(num_stages - stage, num_microbatches)
    for m in range(ahead):
        yield Forward(m)
    for m in range(num_microbatches):
        yield Backward(m)
        if m + ahead < num_microbatches:
            yield Forward(m + ahead)
""")  # fmt: skip
changed("limits P, not P - s", "a warm-up below 0",
        ("min(num_stages - stage, num_microbatches)", "min(num_stages, num_microbatches) - stage"))  # fmt: skip
changed("every stage's list", "the lists of all stages", ("    return order", "    return [order] * num_stages"))
