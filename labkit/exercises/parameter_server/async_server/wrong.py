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
