"""Wrong answers to overlapped_step, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
_OUT = "[piece.rpc_async().push(worker, version, each) for piece, each in zip(pieces, gradients)]"


def step(name: str, mistake: str, *lines: str) -> None:
    body = "\n    ".join(lines)
    WRONG.wrong(name, mistake, f"def overlapped_step(pieces, worker, version, gradients):\n    {body}\n")


step("keeps the pairs", "no tensors", f"return [each.wait() for each in {_OUT}]")
step("keeps the futures", "no tensors", f"return {_OUT}")
step("one after the other", "waits for each answer", f"return {_OUT[:-1].replace('each) for', 'each).wait()[1] for')}]")
step("backwards", "pieces out of order", f"return [each.wait()[1] for each in reversed({_OUT})]")
step("the last is missing", "a piece is lost", f"return [each.wait()[1] for each in {_OUT}][:-1]")
step("pulls afterwards", "pulls what it was told", f"for each in {_OUT}:", "    each.wait()",
     "return [piece.rpc_sync().pull()[1] for piece in pieces]")  # fmt: skip
