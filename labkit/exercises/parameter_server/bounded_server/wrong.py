"""Wrong answers to bounded_server, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

LOCK = ("with self.lock:", "if True:")
NOTE = ("self.updates.append(Update(len(self.updates), worker, version, self.version))", "pass")


FIND = "server.clocks[each] - slowest <= server.bound"
LEAVE = "            del self.clocks[worker]\n            answer_who_may_go(self)\n"
changed("asynchronous", "answers too early", (FIND, "True"))
changed("strictly less", "one step too late", (FIND, FIND.replace("<=", "<")))
changed("one more", "answers too early", (FIND, FIND.replace("server.bound", "server.bound + 1")))
changed("looks at the pusher only", "releases only the worker that pushes",
        ("            answer_who_may_go(self)\n        return future",
         "            if self.clocks[worker] - min(self.clocks.values()) <= self.bound:\n                self.waiting.pop(worker).set_result((self.version, self.weight.clone()))\n        return future"))  # fmt: skip
changed("push answers nobody", "nobody is answered",
        ("            answer_who_may_go(self)\n        return future", "        return future"))  # fmt: skip
changed("record in another order", "another record", ("len(self.updates), worker,", "worker, len(self.updates),"))
changed("leave does nothing", "waits for a worker that has left", (LEAVE, "            pass\n"))
changed("leave lets nobody go", "leaving releases nobody", (LEAVE, "            del self.clocks[worker]\n"))
changed("a worker too many", "the slowest stands at 0", ("range(num_workers), 0)", "range(num_workers + 1), 0)"))
changed("adds the slowest", "added to the slowest", ("server.clocks[each] - slowest", "server.clocks[each] + slowest"))
changed("mean clock", "compared with the mean",
        ("min(server.clocks.values(), default=0)", "sum(server.clocks.values()) / max(1, len(server.clocks))"))  # fmt: skip
changed("the answer of the push", "the weights of the push",
        ("self.waiting[worker] = future", "self.waiting[worker] = (future, (self.version, self.weight.clone()))"),
        ("server.waiting.pop(worker).set_result((server.version, server.weight.clone()))",
         "future, answer = server.waiting.pop(worker)\n        future.set_result(answer)"))  # fmt: skip
changed("no copy", "hands out the server's own tensor", ("server.weight.clone()", "server.weight"))
changed("no lock", "without a lock", LOCK)
changed(
    "waits in push",
    "waits inside push",
    ("        return future\n", "        future.wait()\n        return future\n"),
)
changed("no decorator", "not marked as answered later", ("    @rpc.functions.async_execution\n", ""))
changed("no record", "updates not noted", NOTE)
changed("applies when it answers", "gradients wait as well",
        ("            self.weight -= self.lr * gradient\n", ""),
        ("self.waiting[worker] = future", "self.waiting[worker] = (future, gradient)"),
        ("        server.waiting.pop(worker).set_result((server.version, server.weight.clone()))\n",
         "        future, gradient = server.waiting.pop(worker)\n        server.weight -= server.lr * gradient\n        future.set_result((server.version, server.weight.clone()))\n"))  # fmt: skip

changed("no lock in leave", "without a lock",
        ("        with self.lock:\n" + LEAVE, "        if True:\n" + LEAVE))  # fmt: skip
changed("the first who may go", "one at a time",
        ("        server.waiting.pop(worker).set_result((server.version, server.weight.clone()))\n",
         "        server.waiting.pop(worker).set_result((server.version, server.weight.clone()))\n        break\n"))  # fmt: skip
changed("one future for each worker", "one future for all steps",
        ("        self.waiting: dict[int, Future] = {}\n",
         "        self.waiting: dict[int, Future] = {}\n        self.futures = [Future() for _ in range(num_workers)]\n"),
        ("        future: Future = Future()\n", "        future = self.futures[worker]\n"))  # fmt: skip
changed("released when all are equal", "releases only the worker that pushes",
        ("            answer_who_may_go(self)\n        return future",
         "            if self.clocks[worker] - min(self.clocks.values()) <= self.bound:\n                self.waiting.pop(worker).set_result((self.version, self.weight.clone()))\n            if len(set(self.clocks.values())) == 1:\n                answer_who_may_go(self)\n        return future"),
        (LEAVE, "            del self.clocks[worker]\n            if len(set(self.clocks.values())) == 1:\n                answer_who_may_go(self)\n"))  # fmt: skip
changed(
    "the clock is the version",
    "versions in place of clocks",
    ("self.clocks[worker] += 1", "self.clocks[worker] = self.version"),
)
changed("pulls under the lock", "takes the lock twice", ("(server.version, server.weight.clone())", "server.pull()"))
changed(
    "returns the answer",
    "returns no Future",
    ("        return future\n", "        return self.version, self.weight.clone()\n"),
)
changed(
    "weights alone",
    "the answer is not a pair",
    ("((server.version, server.weight.clone()))", "(server.weight.clone())"),
)
changed("the slowest of those at work", "nobody is answered",
        ("min(server.clocks.values(), default=0)", "min((c for w, c in server.clocks.items() if w not in server.waiting), default=0)"))  # fmt: skip
changed(
    "who leaves lets all go",
    "leaving releases too many",
    (LEAVE, "            del self.clocks[worker]\n            for each in list(self.waiting):\n"
            "                self.waiting.pop(each).set_result((self.version, self.weight.clone()))\n"),
)  # fmt: skip
changed(
    "counts only who has pushed",
    "counts only who has pushed",
    ("self.clocks = dict.fromkeys(range(num_workers), 0)", "self.clocks = {}"),
    ("self.clocks[worker] += 1", "self.clocks[worker] = self.clocks.get(worker, 0) + 1"),
    ("del self.clocks[worker]", "self.clocks.pop(worker, None)"),
)
changed(
    "the version rises when it answers",
    "the version counts answers",
    ("            self.version += 1\n", ""),
    ("        server.waiting.pop(worker)", "        server.version += 1\n        server.waiting.pop(worker)"),
)
changed(
    "the bound is on staleness",
    "versions in place of clocks",
    (
        "            self.waiting[worker] = future\n",
        "            self.waiting[worker] = future\n            self.read = getattr(self, 'read', {})\n            self.read[worker] = self.version - version\n",
    ),
    (FIND, "server.read[each] - 1 <= server.bound"),
)
changed(
    "compared with the fastest",
    "answers too early",
    ("min(server.clocks.values(), default=0)", "max(server.clocks.values(), default=0)"),
    (FIND, "slowest - server.clocks[each] <= server.bound"),
)
changed(
    "compared with the slowest that waits",
    "answers too early",
    ("min(server.clocks.values(), default=0)", "min((server.clocks[each] for each in server.waiting), default=0)"),
)
changed(
    "the slowest as it was when it came",
    "releases only the worker that pushes",
    (
        "            self.waiting[worker] = future\n",
        "            self.waiting[worker] = future\n            self.slowest = getattr(self, 'slowest', {})\n            self.slowest[worker] = min(self.clocks.values())\n",
    ),
    (FIND, "server.clocks[each] - server.slowest[each] <= server.bound"),
)
changed(
    "the clock goes up when it is answered",
    "answers too early",
    ("            self.clocks[worker] += 1\n", ""),
    ("        server.waiting.pop(worker)", "        server.clocks[worker] += 1\n        server.waiting.pop(worker)"),
    (
        "        with self.lock:\n            del",
        "        with self.lock:\n            self.clocks.setdefault(worker, 0)\n            del",
    ),
)
changed("waits for all once it is too far", "releases only the worker that pushes", (FIND, "server.clocks[each] - slowest <= (0 if each in server.far else server.bound)"),
        ("            answer_who_may_go(self)\n        return future", "            if self.clocks[worker] - min(self.clocks.values()) > self.bound:\n                self.far.add(worker)\n            answer_who_may_go(self)\n            self.far.intersection_update(self.waiting)\n        return future"),
        ("        self.waiting: dict[int, Future] = {}\n", "        self.waiting: dict[int, Future] = {}\n        self.far = set()\n"))  # fmt: skip
changed(
    "leave clears the worker's clock",
    "leaving releases nobody",
    (LEAVE, "            self.clocks[worker] = 0\n            answer_who_may_go(self)\n"),
)
changed(
    "the slowest of the others",
    "the last one waits",
    (FIND, "server.clocks[each] - min([c for w, c in server.clocks.items() if w != each], default=0) <= server.bound"),
)
changed(
    "looks who may go, then counts",
    "answers too early",
    ("            self.clocks[worker] += 1\n", ""),
    (
        "            answer_who_may_go(self)\n        return",
        "            answer_who_may_go(self)\n            self.clocks[worker] += 1\n        return",
    ),
)
changed(
    "the clock is the version that was read",
    "versions in place of clocks",
    ("self.clocks[worker] += 1", "self.clocks[worker] = version"),
)
changed(
    "one may stay behind",
    "compared with the mean",
    (FIND, "sum(server.clocks[each] - clock > server.bound for clock in server.clocks.values()) <= 1"),
)
changed("the smallest of none", "nobody is left", (", default=0", ""))
changed(
    "versions since it read",
    "versions in place of clocks",
    (FIND, "server.version - 1 - server.read[each] <= server.bound or server.clocks[each] == slowest"),
    ("self.waiting[worker] = future", "self.waiting[worker], self.read[worker] = future, version"),
    (
        "        self.waiting: dict[int, Future] = {}\n",
        "        self.waiting: dict[int, Future] = {}\n        self.read = {}\n",
    ),
)
