"""Wrong answers to find_deadlock, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong
changed = WRONG.changed


changed("the list of stages", "a dict was asked for",
        ("return {stage: next(r for r in plans[stage][at[stage]] if not can(stage, r)) for stage in waiting}", "return waiting"))  # fmt: skip  # noqa: E501
wrong("always fine", "never finds anything", "def find_stuck(schedules):\n    return {}\n")
changed("one message after another", "waits where it need not",
        ("plans = [list(steps(schedule)) for schedule in schedules]",
         "plans = [[[record] for record in schedule] for schedule in schedules]"))  # fmt: skip
changed("sends never wait", "sends do not wait",
        ("        if isinstance(record, Message):\n            return (",
         "        if isinstance(record, (Recv, RecvGrad)):\n            return ("))  # fmt: skip
changed("work needs nothing", "does not see what work needs",
        ("        m = record.microbatch\n        if isinstance(record, Send):", "        m = record.microbatch\n        return []\n        if isinstance(record, Send):"))  # fmt: skip  # noqa: E501
changed("names the last record of the step", "another record of the same step",
        ("next(r for r in plans[stage][at[stage]] if not can(stage, r))", "plans[stage][at[stage]][-1]"))  # fmt: skip
changed(
    "names the lowest stage only",
    "stages that wait for a stuck stage",
    ("for stage in waiting}", "for stage in waiting[:1]}"),
)
changed("the whole step", "a step instead of a record",
        ("next(r for r in plans[stage][at[stage]] if not can(stage, r))", "plans[stage][at[stage]]"))  # fmt: skip
