"""Wrong answers to backup_workers, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

LOCK = ("with self.lock:", "if True:")


STEP = "torch.stack(self.gradients).mean(0)"
changed("takes late ones", "late gradients are used", ("if version < self.version:", "if False:"))
changed("late ones wait", "late workers wait",
        ("                late: Future = Future()\n                late.set_result((self.version, self.weight.clone()))\n                return late\n",
         "                return self.future\n"))  # fmt: skip
changed("waits for all", "waits for all workers", ("== self.needed", "== self.num_workers"))
changed("mean over all", "divided by the number of workers",
        (STEP, "torch.stack(self.gradients).sum(0) / self.num_workers"))  # fmt: skip
changed("sums", "sum instead of mean", (STEP, "torch.stack(self.gradients).sum(0)"))
changed("no lock", "without a lock", LOCK)
changed("no copy", "hands out the server's own tensor", ("self.weight.clone()", "self.weight"))

changed("hands the last one the new future", "the last one gets the future of the next step",
        ("        return future\n", "        return self.future\n"))  # fmt: skip

NOTE = "self.updates.append(Update(len(self.updates), worker, version, self.version))"
ANSWER = "(self.version, self.weight.clone())"
changed("pulls under the lock", "takes the lock twice", (ANSWER, "self.pull()"))
changed(
    "waits in push", "waits inside push", ("        return future\n", "        future.wait()\n        return future\n")
)
changed("no decorator", "not marked as answered later", ("    @rpc.functions.async_execution\n", ""))
changed("the late one gets its answer as it is", "returns no Future", ("return late\n", f"return {ANSWER}\n"))
changed("weights alone", "the answer is not a pair", (f"({ANSWER})", "(self.weight.clone())"))
changed("keeps the old future", "one future for all steps",
        ("self.gradients, self.future = [], Future()", "self.gradients = []"))  # fmt: skip
changed("no record", "updates not noted", (NOTE, "pass"))
changed("record in another order", "another record", ("len(self.updates), worker,", "worker, len(self.updates),"))
NOTED = "            " + NOTE + "\n"
changed(
    "notes late ones",
    "updates not noted",
    (NOTED, ""),
    ("            if version < self.version:", NOTED + "            if version < self.version:"),
)
changed(
    "tells the late one its own version",
    "late workers hear of an old step",
    ("late.set_result((self.version,", "late.set_result((version,"),
)
changed("notes when the step is taken", "updates not noted", (NOTED, ""), ("self.gradients.append(gradient)", "self.gradients.append((worker, version, gradient))"), (STEP, "torch.stack([each[2] for each in self.gradients]).mean(0)"),
        ("                self.version += 1\n", "                for each, read, _ in self.gradients:\n                    self.updates.append(Update(len(self.updates), each, read, self.version))\n                self.version += 1\n"))  # fmt: skip
changed(
    "late where it is two steps behind",
    "late gradients are used",
    ("if version < self.version:", "if version < self.version - 1:"),
)
changed(
    "the late one takes a step by itself",
    "late gradients are used",
    (
        "                late: Future = Future()\n",
        "                self.weight -= self.lr * gradient\n                self.version += 1\n                late: Future = Future()\n",
    ),
)
changed("the last gradient alone", "only the last gradient", (STEP, "gradient"))
changed(
    "the late one gets the old weights",
    "late workers hear of an old step",
    ("late.set_result((self.version, self.weight.clone()))", "late.set_result((self.version, self.history[version]))"),
    (
        "                self.version += 1\n",
        "                self.version += 1\n                self.history.append(self.weight.clone())\n",
    ),
    ("        self.needed = needed\n", "        self.needed = needed\n        self.history = [weight.clone()]\n"),
)
changed(
    "a sum that begins only once",
    "gradients of earlier steps are still in it",
    (
        "            self.gradients.append(gradient)\n",
        "            self.gradients.append(gradient)\n            self.total = getattr(self, 'total', 0) + gradient\n",
    ),
    (STEP, "self.total / self.needed"),
)
changed(
    "a list that grows",
    "gradients of earlier steps are still in it",
    ("self.gradients, self.future = [], Future()", "self.future = Future()"),
    ("== self.needed", "% self.needed == 0"),
)
