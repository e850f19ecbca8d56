"""Wrong answers to compression_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()

plan = WRONG.within("""
def compression_plan(sizes, num_steps, budget_bytes):
    ...
""")

A_STEP = "[(max(1, int(budget_bytes / num_steps * size / sum(sizes) / {}), ), {}) for size in sizes]"
plan("everything", "over the budget", "return [[(size, 4) for size in sizes]] * num_steps")
plan("places forgotten", "places not counted", f"return [{A_STEP.format(4, 32)}] * num_steps")
plan("shares", "a share of entries", "return [[(0.01, 32) for size in sizes]] * num_steps")
plan("one plan for all steps", "another number of steps", f"return [{A_STEP.format(9, 32)}]")
plan("one pair a step", "not one pair a layer", "return [[(budget_bytes // num_steps // 40, 32)]] * num_steps")
plan("two bits", "no such width", "return [[(size // 50, 2) for size in sizes]] * num_steps")
plan("more than all", "more than there is", "return [[(budget_bytes, 4) for size in sizes]] * num_steps")
plan("no return", "nothing returned", "plan = [[(1, 4) for size in sizes]] * num_steps")
plan("bits first", "no such width", "return [[(4, size // 50) for size in sizes]] * num_steps")
plan("layers first", "another number of steps", "return [[(1, 4)] * num_steps for size in sizes]")
