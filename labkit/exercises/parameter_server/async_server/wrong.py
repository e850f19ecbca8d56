"""Wrong answers to async_server, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

LOCK = ("with self.lock:", "if True:")
NOTE = ("self.updates.append(Update(len(self.updates), worker, version, self.version))", "pass")


STEP = "self.weight -= self.lr * gradient"
changed("no lock", "without a lock", LOCK)
changed("reads, computes and writes without a lock", "without a lock",
        LOCK, (STEP, "weight = self.weight - self.lr * gradient\n            self.weight = weight"))  # fmt: skip
changed("divides", "divided by the number of workers", (STEP, STEP + " / self.num_workers"))
changed("adds", "uphill", (STEP, STEP.replace("-=", "+=")))
changed("no version", "version not counted", ("            self.version += 1\n", ""))
changed("no copy", "hands out the server's own tensor", ("self.weight.clone()", "self.weight"))
changed("drops old ones", "stale gradients are dropped",
        (STEP, "if version == self.version:\n                " + STEP))  # fmt: skip
changed("scales old ones", "stale gradients are scaled down",
        (STEP, STEP + " / (1 + self.version - version)"))  # fmt: skip
changed("copies first", "the weights from before",
        (STEP, "before = self.weight.clone()\n            " + STEP), ("return self.version, self.weight.clone()", "return self.version, before"))  # fmt: skip
changed("notes afterwards", "another record",
        ("            self.version += 1\n", "            self.version += 1\n            " + NOTE[0] + "\n"),
        ("        with self.lock:\n            " + NOTE[0] + "\n", "        with self.lock:\n"))  # fmt: skip

changed("copies after the lock", "without a lock",
        ("            return self.version, self.weight.clone()", "        return self.version, self.weight.clone()"))  # fmt: skip
changed("pulls under the lock", "takes the lock twice", ("self.version, self.weight.clone()", "self.pull()"))
changed("no record", "updates not noted", NOTE)
changed("a list for its length", "another record", ("Update(len(self.updates),", "Update(self.updates,"))
changed(
    "the worker's version and one",
    "counted on from what the worker had read",
    ("            self.version += 1\n", "            self.version = version + 1\n"),
)
changed(
    "answers with the version before",
    "the version from before",
    ("return self.version, self.weight.clone()", "return self.version - 1, self.weight.clone()"),
)
changed(
    "two gradients make a step",
    "gradients are kept until all have pushed",
    (
        STEP,
        "self.kept = [*getattr(self, 'kept', []), gradient]\n            if len(self.kept) == self.num_workers:\n                self.weight -= self.lr * sum(self.kept)\n                self.kept = []",
    ),
)
changed(
    "computes outside the lock",
    "without a lock",
    ("        with self.lock:\n", "        changed = self.weight - self.lr * gradient\n        with self.lock:\n"),
    (STEP, "self.weight = changed"),
)
changed("no learning rate", "the learning rate left out", (STEP, "self.weight -= gradient"))
changed(
    "notes the version it made as the one it read",
    "another record",
    ("worker, version, self.version)", "worker, self.version, self.version + 1)"),
)
changed(
    "answers a Future",
    "answers with a Future",
    (
        "            return self.version, self.weight.clone()",
        "            future = Future()\n            future.set_result((self.version, self.weight.clone()))\n            return future",
    ),
)
changed(
    "refuses old ones",
    "stale gradients are dropped",
    (
        STEP + "\n            self.version += 1\n",
        "if version == self.version:\n                " + STEP + "\n                self.version += 1\n",
    ),
)
