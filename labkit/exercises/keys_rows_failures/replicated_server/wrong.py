"""Wrong answers to replicated_server, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


DONE = "return self.backup.push(worker, number, gradient).then(lambda answer: answer.value() and version)"
changed("acknowledges at once", "acknowledged before the backup has it",
        (DONE, "self.backup.push(worker, number, gradient)"))  # fmt: skip
changed("waits", "waits inside push", (DONE, "self.backup.push(worker, number, gradient).wait()"))
changed(
    "returns the version",
    "returns no Future",
    ("        return done\n", "        return version\n"),
)
changed(
    "no memory",
    "a repeated gradient counts twice",
    ("if (worker, number) not in self.applied:", "if True:"),
)
changed("passes on new ones only", "a repeated gradient is not passed on",
        ("            version = self.version\n", "            else:\n                known: Future = Future()\n                known.set_result(self.version)\n                return known\n            version = self.version\n"))  # fmt: skip
changed("tells nobody", "nothing is pushed to the backup", ("if self.backup is not None:", "if False:"))
changed("hides the failure", "the backup's failure is hidden",
        ("lambda answer: answer.value() and version", "lambda answer: version"))  # fmt: skip
changed(
    "the first only",
    "stops at the first replica",
    ("            continue\n", "            raise\n"),
)
changed("pushes to all", "asks everybody",
        ("    for place, replica in enumerate(replicas):\n        try:\n            replica.push(worker, number, gradient).wait()\n        except RuntimeError:\n            continue\n        return place\n",
         "    answered = []\n    for place, replica in enumerate(replicas):\n        try:\n            replica.push(worker, number, gradient).wait()\n        except RuntimeError:\n            continue\n        answered.append(place)\n    if answered:\n        return answered[0]\n"))  # fmt: skip
changed("returns when all have answered", "asks everybody", ("        return place\n", "    return place\n"))
changed("says nothing", "no error when nobody answers",
        ("    raise RuntimeError(f\"gradient {number} of worker {worker}: none of {len(replicas)} replicas answers\")\n", "    return -1\n"))  # fmt: skip
changed("numbers the retry anew", "another number for the retry",
        ("replica.push(worker, number, gradient).wait()", "replica.push(worker, number + place, gradient).wait()"))  # fmt: skip

changed("keeps numbers", "numbers without their workers",
        ("(worker, number) not in self.applied", "number not in self.applied"), ("self.applied.add((worker, number))", "self.applied.add(number)"))  # fmt: skip
changed("keeps the last number", "the largest number only",
        ("(worker, number) not in self.applied", "number > max((n for w, n in self.applied if w == worker), default=-1)"))  # fmt: skip
changed("waits for no answer", "does not wait for the answer",
        ("replica.push(worker, number, gradient).wait()", "replica.push(worker, number, gradient)"))  # fmt: skip
changed(
    "notes another pair",
    "a new gradient is skipped",
    ("applied.add((worker, number))", "applied.add((number, worker))"),
)
changed("returns what it heard", "returns the answer",
        ("            replica.push(worker, number, gradient).wait()\n", "            place = replica.push(worker, number, gradient).wait()\n"))  # fmt: skip
changed("counts no version", "version not counted", ("                self.version += 1\n", ""))
changed("applies in then", "applied when the backup has answered",
        ("        with self.lock:\n            if (worker, number) not in self.applied:\n                self.applied.add((worker, number))\n                self.weight -= self.lr * gradient\n                self.version += 1\n            version = self.version\n",
         "        def apply(answer=None):\n            if answer is not None:\n                answer.value()\n            with self.lock:\n                if (worker, number) not in self.applied:\n                    self.applied.add((worker, number))\n                    self.weight -= self.lr * gradient\n                    self.version += 1\n                return self.version\n\n"),
        (DONE, "return self.backup.push(worker, number, gradient).then(apply)"), ("done.set_result(version)", "done.set_result(apply())"))  # fmt: skip
changed("no lock", "without the lock", ("        with self.lock:\n", "        if True:\n"))
WRONG.changed(
    "number and worker",
    "another number for the retry",
    ("self.backup.push(worker, number, gradient)", "self.backup.push(number, worker, gradient)"),
)
changed(
    "takes every gradient for a repeated one",
    "nothing applied",
    ("if (worker, number) not in self.applied:", "if False:"),
)
changed("hands on the backup's answer", "the backup's version", ("answer.value() and version", "answer.value()"))
changed(
    "the version when the backup answers",
    "the version of a later moment",
    ("answer.value() and version", "answer.value() and self.version"),
)
changed(
    "counts what is repeated",
    "a repeated push counts a version",
    ("                self.version += 1\n            version", "            self.version += 1\n            version"),
)
changed("the backup first", "not the primary first", ("enumerate(replicas):", "reversed([*enumerate(replicas)]):"))
changed(
    "counts replicas from 1", "another number than the index", ("        return place\n", "        return place + 1\n")
)
changed(
    "raises a ValueError",
    "no error when nobody answers",
    ('    raise RuntimeError(f"gradient', '    raise ValueError(f"gradient'),
)
changed(
    "catches the answer alone",
    "stops at the first replica",
    (
        "        try:\n            replica.push(worker, number, gradient).wait()\n",
        "        future = replica.push(worker, number, gradient)\n        try:\n            future.wait()\n",
    ),
)
changed(
    "pushes to all at once",
    "asks everybody",
    (
        "    for place, replica in enumerate(replicas):\n        try:\n            replica.push(worker, number, gradient).wait()\n",
        "    futures = []\n    for replica in replicas:\n        try:\n            futures.append(replica.push(worker, number, gradient))\n        except RuntimeError as error:\n            futures.append(Future())\n            futures[-1].set_exception(error)\n    for place, future in enumerate(futures):\n        try:\n            future.wait()\n",
    ),
)
changed(
    "a repeated push is answered at once",
    "acknowledged before the backup has it",
    (
        "            version = self.version\n        if",
        "                known = False\n            else:\n                known = True\n            version = self.version\n        if known and self.backup is not None:\n            self.backup.push(worker, number, gradient)\n            sure: Future = Future()\n            sure.set_result(version)\n            return sure\n        if",
    ),
)
changed("compares with the last alone", "the last number only",
        ("self.applied: set[tuple[int, int]] = set()", "self.applied: dict[int, int] = {}"),
        ("if (worker, number) not in self.applied:\n                self.applied.add((worker, number))", "if number != self.applied.get(worker):\n                self.applied[worker] = number"))  # fmt: skip
changed("looks before it locks", "without the lock",
        ("        with self.lock:\n            if (worker, number) not in self.applied:\n", "        new = (worker, number) not in self.applied\n        with self.lock:\n            if new:\n"))  # fmt: skip
changed("reads the version behind the lock", "without the lock",
        ("            version = self.version\n", "        version = self.version\n"))  # fmt: skip
changed(
    "passes over the error",
    "does not wait for the answer",
    ("        except RuntimeError:\n            continue\n", "        except RuntimeError:\n            pass\n"),
)
