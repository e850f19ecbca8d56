"""Wrong answers to staleness_policy, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


plan = WRONG.within("def staleness_policy(crew):\n    n = crew.num_workers\n    return ...\n")

plan("a rate alone", "no policy", "0.1")
plan("more than there are", "no policy", '{"needed": n + 1, "bound": None, "rates": [1.0]}')
plan("no rates", "no policy", '{"needed": 1, "bound": 2, "rates": []}')
plan(
    "synchronous rates without waiting",
    "the loss is never reached",
    '{"needed": 1, "bound": None, "rates": [2.0] * 99}',
)
plan("fresh ones only", "drops too much", '{"needed": 1, "bound": None, "rates": [0.01]}')
