"""Wrong answers to bucket_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers, replaced

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


PLAN = """
def bucket_plan(sizes, cap_bytes):
    buckets, filled = [], 0
    for index in reversed(range(len(sizes))):
        if not buckets or filled + sizes[index] > cap_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(index)
        filled += sizes[index]
    return buckets
"""


def plan(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    wrong(name, mistake, replaced(PLAN, *changes))


plan("from the first", "order of registration", ("reversed(range(len(sizes)))", "range(len(sizes))"))
plan("looks after it has added", "over the cap", ("filled + sizes[index] > cap_bytes", "filled >= cap_bytes"))
plan("less than the cap", "closed too early", ("> cap_bytes", ">= cap_bytes"))
plan("begins with an empty bucket", "an empty bucket", ("buckets, filled = [], 0", "buckets, filled = [[]], 0"))
plan("the last bucket is lost", "a parameter is lost", ("return buckets", "return buckets[:-1]"))
