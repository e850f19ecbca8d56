"""Wrong answers to sync_server, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

LOCK = ("with self.lock:", "if True:")
NOTE = ("self.updates.append(Update(len(self.updates), worker, version, self.version))", "pass")


STEP = "self.weight -= self.lr / self.num_workers * sum(self.gradients.values())"
changed("sums", "sum instead of mean", (STEP, STEP.replace(" / self.num_workers", "")))
changed("keeps the old future", "one future for all steps",
        ("self.gradients, self.future = {}, Future()", "self.gradients = {}"))  # fmt: skip
changed("a future for each push", "only the last one is answered",
        ("            future = self.future\n", "            future = Future()\n"))  # fmt: skip
changed("completes at once", "answers everybody at once",
        ("            future = self.future\n", "            future = Future()\n            future.set_result((self.version, self.weight.clone()))\n"),
        ("                future.set_result((self.version, self.weight.clone()))\n        return", "        return"))  # fmt: skip
changed("keeps the gradients", "gradients of earlier steps are still in it",
        ("self.gradients: dict[int, Tensor] = {}", "self.total, self.count = torch.zeros_like(weight), 0"),
        ("self.gradients[worker] = gradient", "self.total += gradient\n            self.count += 1"),
        ("if len(self.gradients) == self.num_workers", "if self.count == self.num_workers"),
        (STEP, "self.weight -= self.lr * self.total / self.num_workers"),
        ("self.gradients, self.future = {}, Future()", "self.count, self.future = 0, Future()"))  # fmt: skip
changed("the last gradient", "only the last gradient", (STEP, "self.weight -= self.lr * gradient"))
changed("answers first", "the weights from before the step",
        (f"                {STEP}\n", "                before = self.weight.clone()\n" + f"                {STEP}\n"),
        ("future.set_result((self.version, self.weight.clone()))", "future.set_result((self.version, before))"))  # fmt: skip
changed("no copy", "hands out the server's own tensor",
        ("future.set_result((self.version, self.weight.clone()))", "future.set_result((self.version, self.weight))"))  # fmt: skip
changed(
    "waits in push",
    "waits inside push",
    ("        return future\n", "        future.wait()\n        return future\n"),
)
changed("no decorator", "not marked as answered later", ("    @rpc.functions.async_execution\n", ""))
changed(
    "returns the answer",
    "returns no Future",
    ("        return future\n", "        return self.version, self.weight\n"),
)
changed("weights alone", "the answer is not a pair",
        ("future.set_result((self.version, self.weight.clone()))", "future.set_result(self.weight.clone())"))  # fmt: skip
changed("adds up without a lock", "without a lock", LOCK,
    ("self.gradients: dict[int, Tensor] = {}", "self.total, self.count = torch.zeros_like(weight), 0"),
    ("self.gradients[worker] = gradient", "total = self.total + gradient\n            self.total = total\n            self.count += 1"),
    ("if len(self.gradients) == self.num_workers", "if self.count == self.num_workers"),
    (STEP, "self.weight -= self.lr * self.total / self.num_workers"),
    ("self.gradients, self.future = {}, Future()", "self.total, self.count, self.future = torch.zeros_like(self.weight), 0, Future()"),
)  # fmt: skip
changed("no record", "updates not noted", NOTE)

changed("hands the last one the new future", "the last one gets the future of the next step",
        ("            future = self.future\n", ""), ("                future.set_result(", "                done.set_result("),
        ("self.gradients, self.future = {}, Future()", "done, self.gradients, self.future = self.future, {}, Future()"),
        ("        return future\n", "        return self.future\n"))  # fmt: skip
changed("adds up in place, without a lock", "without a lock", LOCK)
changed(
    "pulls under the lock",
    "takes the lock twice",
    ("(self.version, self.weight.clone())", "self.pull()"),
)
changed("record in another order", "another record", ("len(self.updates), worker,", "worker, len(self.updates),"))
changed(
    "never takes the step",
    "nobody is answered",
    ("if len(self.gradients) == self.num_workers:", "if len(self.gradients) > self.num_workers:"),
)
NOTED = "            " + NOTE[0] + "\n"
changed(
    "the version before the step",
    "the version from before the step",
    ("future.set_result((self.version,", "future.set_result((self.version - 1,"),
)
changed(
    "a version for each gradient",
    "a version for each gradient",
    ("                self.version += 1\n", "                self.version += self.num_workers\n"),
)
changed("each push takes its part of the step", "the step is taken piece by piece", ("            self.gradients[worker] = gradient\n", "            self.gradients[worker] = gradient\n            self.weight -= self.lr / self.num_workers * gradient\n"),
        (f"                {STEP}\n", ""))  # fmt: skip
changed("notes in the order of the workers", "another record", (NOTED, ""), ("self.gradients[worker] = gradient", "self.gradients[worker] = (gradient, version)"),
        (f"                {STEP}\n", "                for each, (gradient, read) in sorted(self.gradients.items(), key=lambda item: item[0]):\n                    self.updates.append(Update(len(self.updates), each, read, self.version))\n                    self.weight -= self.lr / self.num_workers * gradient\n"))  # fmt: skip
changed(
    "the last worker takes the step",
    "the worker with the highest number takes the step",
    ("if len(self.gradients) == self.num_workers", "if worker == self.num_workers - 1"),
)
changed(
    "notes the last push alone",
    "updates not noted",
    (NOTED, ""),
    ("                self.version += 1\n", "                " + NOTE[0] + "\n                self.version += 1\n"),
)
changed(
    "notes the version after the step",
    "another record",
    ("worker, version, self.version)", "worker, version, self.version + 1)"),
)
