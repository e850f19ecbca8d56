"""Wrong answers to run_orders, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


SCALE = " * (sizes[m] / sum(sizes))"

FOUND = "weight.grad = found if weight.grad is None else weight.grad + found"
HALVES = "if isinstance(record, BackwardChunk):"
changed("the layer does all at once", "weights' gradients at once", ("later.append(rest)", "rest()"))
changed("the last gradient wins", "overwritten, not added", (FOUND, "weight.grad = found"))
changed("no weights for chunks", "the weights' half is never done", (HALVES, "if False:"))
changed("no leaf", "no gradient for what entered", (".requires_grad_()", ""))
changed("the loss as it is", "loss not scaled", (SCALE, ""))
changed("divided by M", "mean of means", (SCALE, " / len(sizes)"))
changed("both halves together", "weights when they were put off",
        (HALVES, "if True:"), ("for rest in put_off.pop(m):", "for rest in put_off.pop(m, []):"))  # fmt: skip
changed("kept by microbatch", "chunks share a place",
        ('chunk, m = key = getattr(record, "chunk", 0), record.microbatch',
         'chunk, m = getattr(record, "chunk", 0), record.microbatch\n        key = m'))  # fmt: skip
changed(
    "nobody waits for sends",
    "read before it arrived",
    ("    for work in sent:\n        work.wait()\n", ""),
)
