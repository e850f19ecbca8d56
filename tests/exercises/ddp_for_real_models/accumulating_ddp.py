"""Wrong answers to accumulating_ddp, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers, replaced

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


ACCUMULATING = """
class AccumulatingDDP(BucketedDDP):
    synchronize = True

    @contextmanager
    def no_sync(self):
        before, self.synchronize = self.synchronize, False
        try:
            yield
        finally:
            self.synchronize = before

    def on_gradient(self, index, parameter):
        if self.synchronize:
            super().on_gradient(index, parameter)
"""


def accumulating(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    wrong(name, mistake, replaced(ACCUMULATING, *changes))


accumulating("no_sync does nothing", "sends inside no_sync", ("        if self.synchronize:\n    ", "    "))
accumulating(
    "no finally",
    "no_sync stays on after an error",
    (
        "        try:\n            yield\n        finally:\n            self.synchronize = before",
        "        yield\n        self.synchronize = before",
    ),
)
accumulating(
    "divided by the passes",
    "accumulation is wrong",
    (
        "        if self.synchronize:\n",
        "        self.passes = getattr(self, 'passes', 0) + 1\n        if self.synchronize:\n"
        "            parameter.grad /= 2\n",
    ),
)
accumulating(
    "gradients of quiet passes are thrown away",
    "accumulation is wrong",
    (
        "            super().on_gradient(index, parameter)",
        "            super().on_gradient(index, parameter)\n        else:\n            parameter.grad = None",
    ),
)
accumulating("no decorator", "a generator is no context", ("    @contextmanager\n", ""))
