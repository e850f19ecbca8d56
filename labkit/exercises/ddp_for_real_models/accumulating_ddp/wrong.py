"""Wrong answers to accumulating_ddp, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

CONTEXT = "        try:\n            yield\n        finally:\n            self.synchronize = before"
SENDS = "        if self.synchronize:\n            super().on_gradient(parameter)"

changed("no_sync does nothing", "sends inside no_sync", (SENDS, "        super().on_gradient(parameter)"))
changed("no finally", "no_sync stays on after an error", (CONTEXT, "        yield\n        self.synchronize = before"))
changed(
    "divided by the passes",
    "accumulation is wrong",
    (
        SENDS,
        "        if self.synchronize:\n            parameter.grad /= 2\n            super().on_gradient(parameter)",
    ),
)
changed(
    "gradients of quiet passes are thrown away",
    "accumulation is wrong",
    (SENDS, SENDS + "\n        else:\n            parameter.grad = None"),
)
COUNTS = """
    def forward(self, *args, **kwargs):
        self.passes = getattr(self, "passes", 0) + 1
        return super().forward(*args, **kwargs)

    def pack(self):
        passes, self.passes = self.passes, 0
        return super().pack() / passes"""
changed("divided by all passes", "mean over the passes", (SENDS, f"{SENDS}\n{COUNTS}"))
changed("no yield", "no_sync never yields", ("            yield\n", "            pass\n"))
changed("returns too early", "no_sync never yields", ("            yield\n", "            return\n            yield\n"))
changed("yields again", "no_sync never yields", (CONTEXT, CONTEXT + "\n        yield"))
changed("no decorator", "no context manager", ("    @contextmanager\n", ""))
WRONG.wrong(
    "torch's own",
    "wraps torch's DDP",
    """
class AccumulatingDDP(nn.parallel.DistributedDataParallel):
    def finish_gradient_synchronization(self):
        pass
""",
)
changed("never on again", "the bucket never left", (CONTEXT, CONTEXT.replace("= before", "= False")))
