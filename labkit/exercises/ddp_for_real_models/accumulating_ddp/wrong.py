"""Wrong answers to accumulating_ddp, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

CONTEXT = "        try:\n            yield\n        finally:\n            self.synchronize = before"
SENDS = "        if self.synchronize:\n            super().on_gradient(parameter)"
KEEPS_QUIET = """            super().on_gradient(parameter)
        else:
            self.quiet[parameter] = parameter.grad.clone()

    def __init__(self, module):
        self.quiet = {}
        super().__init__(module)"""

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
LAUNCH = "            self.synchronize = before"
changed(
    "sends as the context ends",
    "sends inside no_sync",
    (LAUNCH, LAUNCH + "\n            self.launch()\n            self.finish_gradient_synchronization()"),
)
changed(
    "sends the last pass alone",
    "accumulation is wrong",
    ("        before,", "        self.earlier = {p: p.grad for p in self.trained}\n        before,"),
    (
        SENDS,
        """        if self.synchronize:
            if (earlier := self.quiet.get(parameter)) is not None:
                parameter.grad -= earlier
"""
        + KEEPS_QUIET,
    ),
)
changed(
    "adds the passes up once more",
    "accumulation is wrong",
    (
        SENDS,
        """        if self.synchronize:
            if parameter in self.quiet:
                parameter.grad += self.quiet.pop(parameter)
"""
        + KEEPS_QUIET,
    ),
)
changed(
    "no gradients in the context",
    "no gradients inside no_sync",
    (
        CONTEXT,
        """        try:
            with torch.no_grad():
                yield
        finally:
            self.synchronize = before""",
    ),
)
changed(
    "sends again only after no error",
    "no_sync stays on after an error",
    (
        CONTEXT,
        """        try:
            yield
        except Exception:
            raise
        else:
            self.synchronize = before""",
    ),
)
WRONG.right(
    "on again as it ends",
    """
class AccumulatingDDP(OneBucketDDP):
    sends = True

    @contextmanager
    def no_sync(self):
        self.sends = False
        try:
            yield
        finally:
            self.sends = True

    def on_gradient(self, parameter):
        if self.sends:
            super().on_gradient(parameter)
""",
)
WRONG.changed(
    "except without raise",
    "the exception stays inside",
    (
        ("        finally:\n            self.synchronize = before"),
        ("        except Exception:\n            pass\n        self.synchronize = before"),
    ),
)
WRONG.changed(
    "decides in forward",
    "the flag is asked in forward",
    (
        ("    def on_gradient(self, parameter):\n        if self.synchronize:"),
        (
            "    def forward(self, *args, **kwargs):\n"
            "        self.wanted = self.synchronize\n"
            "        return super().forward(*args, **kwargs)\n"
            "\n"
            "    def on_gradient(self, parameter):\n"
            "        if self.wanted:"
        ),
    ),
)
WRONG.changed(
    "hooks again after no_sync",
    "the bucket leaves twice",
    (
        ("        try:\n            yield\n        finally:\n"),
        (
            "        try:\n"
            "            yield\n"
            "        finally:\n"
            "            for p in self.trained:\n"
            "                p.register_post_accumulate_grad_hook(self.on_gradient)\n"
        ),
    ),
)
CLASS = "AccumulatingDDP.synchronize"
WRONG.changed(
    "a flag on the class",
    "a flag for all wrappers",
    ("before, self.synchronize = self.synchronize, False", f"before, {CLASS} = {CLASS}, False"),
    ("self.synchronize = before", f"{CLASS} = before"),
)
