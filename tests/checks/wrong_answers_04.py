"""Wrong answers to lesson 04, each a mistake that learners really make, and the mistake a check must name.

Most of them are the lesson's own answer with one thing changed, so that nothing else is wrong.
"""

# ruff: noqa: E501

from __future__ import annotations

from functools import cache

from tests.checks.lesson_cells import lesson
from tests.checks.wrong_answer import WrongAnswer

WRONG: list[WrongAnswer] = []


@cache
def _answer(exercise: str) -> str:
    (cell,) = [cell for cell in lesson("04").cells if cell.role == "exercise" and cell.exercise == exercise]
    return cell.source


def changed(exercise: str, name: str, mistake: str, *changes: tuple[str, str]) -> None:
    """Add the lesson's answer with each of the texts replaced."""
    source = _answer(exercise)
    for old, new in changes:
        assert old in source, f"{exercise}, {name}: the answer has no {old!r}"
        source = source.replace(old, new)
    WRONG.append(WrongAnswer(exercise, name, mistake, source))


LOCK = ("with self.lock:", "if True:")
NOTE = ("self.updates.append(Update(len(self.updates), worker, version, self.version))", "pass")

# ---- posted_training

changed("posted_training", "receives and does not apply", "nothing was served", ("weight -= lr * gradient", "pass"))
changed("posted_training", "tells nobody", "the others were not told", ("    dist.broadcast(weight, src=0)\n", ""))
changed("posted_training", "one message of each worker", "messages that nobody takes",
        ("        for _ in range(num_gradients):\n", "        for _ in range(1):\n"))  # fmt: skip
changed("posted_training", "adds", "uphill", ("weight -= lr", "weight += lr"))
changed("posted_training", "in place", "works on the weight that was handed in", ("    weight = weight.clone()\n", ""))
changed("posted_training", "applies once, after the loop", "only the last message counts",
        ("                weight -= lr * gradient\n", "        weight -= lr * gradient\n"))  # fmt: skip
changed("posted_training", "all_reduces the sum", "gradients not sent one by one",
        ("    if dist.get_rank() > 0:\n        for gradient in gradients:\n            dist.send(gradient.contiguous(), dst=0)\n",
         "    total = sum(gradients, torch.zeros_like(weight))\n    dist.all_reduce(total)\n    weight -= lr * total\n    if True:\n        pass\n"))  # fmt: skip

changed("posted_training", "divides by the workers", "divided by the number of workers",
        ("weight -= lr * gradient", "weight -= lr * gradient / (dist.get_world_size() - 1)"))  # fmt: skip
changed("posted_training", "isend, and nobody waits", "messages that nobody takes", ("dist.send(", "dist.isend("))

# ---- sync_server

STEP = "self.weight -= self.lr / self.num_workers * sum(self.gradients.values())"
changed("sync_server", "sums", "sum called mean", (STEP, STEP.replace(" / self.num_workers", "")))
changed("sync_server", "keeps the old future", "one future for all steps",
        ("self.gradients, self.future = {}, Future()", "self.gradients = {}"))  # fmt: skip
changed("sync_server", "a future for each push", "only the last one is answered",
        ("            future = self.future\n", "            future = Future()\n"))  # fmt: skip
changed("sync_server", "completes at once", "answers everybody at once",
        ("            future = self.future\n", "            future = Future()\n            future.set_result((self.version, self.weight.clone()))\n"),
        ("                future.set_result((self.version, self.weight.clone()))\n        return", "        return"))  # fmt: skip
changed("sync_server", "keeps the gradients", "gradients of earlier steps are still in it",
        ("self.gradients: dict[int, Tensor] = {}", "self.total, self.count = torch.zeros_like(weight), 0"),
        ("self.gradients[worker] = gradient", "self.total += gradient\n            self.count += 1"),
        ("if len(self.gradients) == self.num_workers", "if self.count == self.num_workers"),
        (STEP, "self.weight -= self.lr * self.total / self.num_workers"),
        ("self.gradients, self.future = {}, Future()", "self.count, self.future = 0, Future()"))  # fmt: skip
changed("sync_server", "the last gradient", "only the last gradient", (STEP, "self.weight -= self.lr * gradient"))
changed("sync_server", "answers first", "the weights from before the step",
        (f"                {STEP}\n", "                before = self.weight.clone()\n" + f"                {STEP}\n"),
        ("future.set_result((self.version, self.weight.clone()))", "future.set_result((self.version, before))"))  # fmt: skip
changed("sync_server", "no copy", "hands out the server's own tensor",
        ("future.set_result((self.version, self.weight.clone()))", "future.set_result((self.version, self.weight))"))  # fmt: skip
changed(
    "sync_server",
    "waits in push",
    "waits inside push",
    ("        return future\n", "        future.wait()\n        return future\n"),
)
changed("sync_server", "no decorator", "not marked as answered later", ("    @rpc.functions.async_execution\n", ""))
changed(
    "sync_server",
    "returns the answer",
    "returns no Future",
    ("        return future\n", "        return self.version, self.weight\n"),
)
changed("sync_server", "weights alone", "the answer is no pair",
        ("future.set_result((self.version, self.weight.clone()))", "future.set_result(self.weight.clone())"))  # fmt: skip
changed(
    "sync_server", "adds up without a lock", "without a lock", LOCK,
    ("self.gradients: dict[int, Tensor] = {}", "self.total, self.count = torch.zeros_like(weight), 0"),
    ("self.gradients[worker] = gradient", "total = self.total + gradient\n            self.total = total\n            self.count += 1"),
    ("if len(self.gradients) == self.num_workers", "if self.count == self.num_workers"),
    (STEP, "self.weight -= self.lr * self.total / self.num_workers"),
    ("self.gradients, self.future = {}, Future()", "self.total, self.count, self.future = torch.zeros_like(self.weight), 0, Future()"),
)  # fmt: skip
changed("sync_server", "no record", "updates not noted", NOTE)

changed("sync_server", "hands the last one the new future", "the last one gets the future of the next step",
        ("            future = self.future\n", ""), ("                future.set_result(", "                done.set_result("),
        ("self.gradients, self.future = {}, Future()", "done, self.gradients, self.future = self.future, {}, Future()"),
        ("        return future\n", "        return self.future\n"))  # fmt: skip
changed("sync_server", "adds up in place, without a lock", "without a lock", LOCK)
changed(
    "sync_server",
    "pulls under the lock",
    "takes the lock twice",
    ("(self.version, self.weight.clone())", "self.pull()"),
)

# ---- async_server

STEP = "self.weight -= self.lr * gradient"
changed("async_server", "no lock", "without a lock", LOCK)
changed("async_server", "reads, computes and writes without a lock", "without a lock",
        LOCK, (STEP, "weight = self.weight - self.lr * gradient\n            self.weight = weight"))  # fmt: skip
changed("async_server", "divides", "divided by the number of workers", (STEP, STEP + " / self.num_workers"))
changed("async_server", "adds", "uphill", (STEP, STEP.replace("-=", "+=")))
changed("async_server", "no version", "version not counted", ("            self.version += 1\n", ""))
changed("async_server", "no copy", "hands out the server's own tensor", ("self.weight.clone()", "self.weight"))
changed("async_server", "drops old ones", "stale gradients are dropped",
        (STEP, "if version == self.version:\n                " + STEP))  # fmt: skip
changed("async_server", "scales old ones", "stale gradients are scaled down",
        (STEP, STEP + " / (1 + self.version - version)"))  # fmt: skip
changed("async_server", "copies first", "the weights from before",
        (STEP, "before = self.weight.clone()\n            " + STEP), ("return self.version, self.weight.clone()", "return self.version, before"))  # fmt: skip
changed("async_server", "notes afterwards", "updates not noted",
        ("            self.version += 1\n", "            self.version += 1\n            " + NOTE[0] + "\n"),
        ("        with self.lock:\n            " + NOTE[0] + "\n", "        with self.lock:\n"))  # fmt: skip

changed("async_server", "copies after the lock", "without a lock",
        ("            return self.version, self.weight.clone()", "        return self.version, self.weight.clone()"))  # fmt: skip
changed(
    "async_server", "pulls under the lock", "takes the lock twice", ("self.version, self.weight.clone()", "self.pull()")
)

# ---- bounded_server

FIND = "server.clocks[each] - slowest <= server.bound"
LEAVE = "            del self.clocks[worker]\n            answer_who_may_go(self)\n"
changed("bounded_server", "asynchronous", "answers too early", (FIND, "True"))
changed("bounded_server", "strictly less", "one step too late", (FIND, FIND.replace("<=", "<")))
changed("bounded_server", "one more", "answers too early", (FIND, FIND.replace("server.bound", "server.bound + 1")))
changed("bounded_server", "looks at the pusher only", "only the one who pushes is let go",
        ("            answer_who_may_go(self)\n        return future",
         "            if self.clocks[worker] - min(self.clocks.values()) <= self.bound:\n                self.waiting.pop(worker).set_result((self.version, self.weight.clone()))\n        return future"))  # fmt: skip
changed("bounded_server", "leave does nothing", "who has left is waited for", (LEAVE, "            pass\n"))
changed(
    "bounded_server", "leave lets nobody go", "leaving lets nobody go", (LEAVE, "            del self.clocks[worker]\n")
)
changed("bounded_server", "mean clock", "compared with the mean",
        ("min(server.clocks.values(), default=0)", "sum(server.clocks.values()) / max(1, len(server.clocks))"))  # fmt: skip
changed("bounded_server", "the answer of the push", "the weights of the push",
        ("self.waiting[worker] = future", "self.waiting[worker] = (future, (self.version, self.weight.clone()))"),
        ("server.waiting.pop(worker).set_result((server.version, server.weight.clone()))",
         "future, answer = server.waiting.pop(worker)\n        future.set_result(answer)"))  # fmt: skip
changed("bounded_server", "no copy", "hands out the server's own tensor", ("server.weight.clone()", "server.weight"))
changed("bounded_server", "no lock", "without a lock", LOCK)
changed(
    "bounded_server",
    "waits in push",
    "waits inside push",
    ("        return future\n", "        future.wait()\n        return future\n"),
)
changed("bounded_server", "no decorator", "not marked as answered later", ("    @rpc.functions.async_execution\n", ""))
changed("bounded_server", "no record", "updates not noted", NOTE)
changed("bounded_server", "applies when it answers", "gradients wait as well",
        ("            self.weight -= self.lr * gradient\n", ""),
        ("self.waiting[worker] = future", "self.waiting[worker] = (future, gradient)"),
        ("        server.waiting.pop(worker).set_result((server.version, server.weight.clone()))\n",
         "        future, gradient = server.waiting.pop(worker)\n        server.weight -= server.lr * gradient\n        future.set_result((server.version, server.weight.clone()))\n"))  # fmt: skip

changed("bounded_server", "no lock in leave", "without a lock",
        ("        with self.lock:\n" + LEAVE, "        if True:\n" + LEAVE))  # fmt: skip
changed("bounded_server", "the first who may go", "one at a time",
        ("        server.waiting.pop(worker).set_result((server.version, server.weight.clone()))\n",
         "        server.waiting.pop(worker).set_result((server.version, server.weight.clone()))\n        break\n"))  # fmt: skip

# ---- backup_workers

STEP = "torch.stack(self.gradients).mean(0)"
changed("backup_workers", "takes late ones", "late gradients are used", ("if version < self.version:", "if False:"))
changed("backup_workers", "late ones wait", "late workers wait",
        ("                late: Future = Future()\n                late.set_result((self.version, self.weight.clone()))\n                return late\n",
         "                return self.future\n"))  # fmt: skip
changed("backup_workers", "waits for all", "waits for all workers", ("== self.needed", "== self.num_workers"))
changed("backup_workers", "mean over all", "divided by the number of workers",
        (STEP, "torch.stack(self.gradients).sum(0) / self.num_workers"))  # fmt: skip
changed("backup_workers", "sums", "sum called mean", (STEP, "torch.stack(self.gradients).sum(0)"))
changed("backup_workers", "no lock", "without a lock", LOCK)
changed("backup_workers", "no copy", "hands out the server's own tensor", ("self.weight.clone()", "self.weight"))

changed("backup_workers", "hands the last one the new future", "the last one gets the future of the next step",
        ("        return future\n", "        return self.future\n"))  # fmt: skip

# ---- server_or_ring

SECONDS = "return 2 * (latency_s + max(1, num_workers / num_servers) * num_bytes / bandwidth_Bps)"
changed("server_or_ring", "half a step", "one way only", (SECONDS, SECONDS.replace("2 * ", "")))
changed(
    "server_or_ring",
    "N over S",
    "the workers' links forgotten",
    ("max(1, num_workers / num_servers) * num_bytes", "num_workers / num_servers * num_bytes"),
)
changed(
    "server_or_ring",
    "every server has all",
    "servers do not share",
    ("max(1, num_workers / num_servers) * num_bytes", "num_workers * num_bytes"),
)
changed(
    "server_or_ring",
    "latency for each worker",
    "workers one after the other in latency too",
    ("(latency_s", "(num_workers * latency_s"),
)
changed("server_or_ring", "whole ring", "a ring that sends everything once", ("(num_workers - 1) / num_workers", "1.0"))
changed("server_or_ring", "prints", "returns nothing", ("return min(1.0", "print(1.0"))
changed("server_or_ring", "always a server", "the busiest link is always a server's",
        ("min(1.0, ring / max(1, num_workers / num_servers))", "min(1.0, ring * num_servers / num_workers)"))  # fmt: skip

changed("server_or_ring", "more than all", "more than all",
        ("min(1.0, ring / max(1, num_workers / num_servers))", "ring / (num_workers / num_servers)"))  # fmt: skip
changed("server_or_ring", "the ring both ways", "one direction set against two", ("min(1.0, ring", "min(1.0, 2 * ring"))

# ---- place_keys

RANGE = "return torch.bucketize(keys, firsts, right=True)"
HASH = "return (keys * 2654435761 % 2**32) * num_servers // 2**32"
changed(
    "place_keys",
    "ceiling",
    "equal stretches, the last one short",
    (RANGE, "return keys // -(-num_keys // num_servers)"),
)
changed("place_keys", "scales", "proportional", (RANGE, "return keys * num_servers // num_keys"))
changed("place_keys", "round robin", "dealt round robin", (RANGE, "return keys % num_servers"))
changed("place_keys", "longer ones last", "longer stretches last",
        (RANGE, "return num_servers - 1 - torch.bucketize(num_keys - 1 - keys, firsts, right=True)"))  # fmt: skip
changed("place_keys", "modulo", "no scramble", (HASH, "return keys % num_servers"))
changed(
    "place_keys",
    "modulo at the end",
    "modulo after the scramble",
    (HASH, "return (keys * 2654435761 % 2**32) % num_servers"),
)
changed(
    "place_keys", "forgets the cut", "not cut to 32 bits", (HASH, "return keys * 2654435761 * num_servers // 2**32")
)
changed(
    "place_keys",
    "a list",
    "another type or shape",
    (HASH, HASH + ".tolist()".replace(".", ".", 1) if False else HASH.replace("return ", "return list(") + ")"),
)

changed("place_keys", "bounds to the left", "the first of a stretch in the one before",
        (RANGE, "return torch.searchsorted(torch.cat([torch.zeros(1, dtype=torch.int64), firsts]), keys) - 1"))  # fmt: skip
changed(
    "place_keys", "divides first", "rounded", (HASH, "return (keys * 2654435761 % 2**32 / 2**32 * num_servers).long()")
)

# ---- sparse_rows

changed("sparse_rows", "in the order of the answers", "rows in the order of the servers",
        ("        rows[home == number] = answer\n", "        pass\n"), ("return rows[where]", "return torch.cat(list(answers.values()))[where]"))  # fmt: skip
changed("sparse_rows", "different keys only", "rows of the different keys only", ("return rows[where]", "return rows"))
changed("sparse_rows", "assigns", "one gradient in place of the sum",
        ("sums = gradients.new_zeros(len(different), gradients.shape[1]).index_add_(0, where, gradients)",
         "sums = gradients.new_zeros(len(different), gradients.shape[1])\n    sums[where] = gradients"))  # fmt: skip
changed("sparse_rows", "sends all keys", "keys sent more than once",
        ("wanted, where = torch.unique(keys, return_inverse=True)", "wanted, where = keys, torch.arange(len(keys))"))  # fmt: skip
changed("sparse_rows", "calls everybody", "servers called for nothing",
        ("        for number, server in enumerate(servers)\n        if (home == number).any()\n    ]", "        for number, server in enumerate(servers)\n    ]"))  # fmt: skip
changed("sparse_rows", "waits each time", "one server after the other",
        ("server.rpc_async().pull(wanted[home == number])", "server.rpc_sync().pull(wanted[home == number])"),
        ("call.wait() for number, call", "call for number, call"))  # fmt: skip
changed("sparse_rows", "pushes one after the other", "one server after the other",
        ("server.rpc_async().push(different", "server.rpc_sync().push(different"),
        ("    for call in calls:\n        call.wait()\n", ""))  # fmt: skip
changed("sparse_rows", "a call for each key", "a call for every key",
        ("server.rpc_async().push(different[home == number], sums[home == number])\n", "server.rpc_async().push(key, total)\n"),
        ("        for number, server in enumerate(servers)\n        if (home == number).any()\n    ]",
         "        for number, server in enumerate(servers)\n        for key, total in zip(different[home == number].split(1), sums[home == number].split(1))\n    ]"))  # fmt: skip

changed("sparse_rows", "pushes and goes", "does not wait", ("    for call in calls:\n        call.wait()\n", ""))
changed(
    "sparse_rows",
    "waits for the last",
    "does not wait",
    ("    for call in calls:\n        call.wait()\n", "    calls[-1].wait()\n"),
)
changed("sparse_rows", "sums in float32", "sums in another type", ("gradients.new_zeros(", "torch.zeros("))

# ---- hot_keys

changed(
    "hot_keys",
    "shares writes",
    "writes shared like reads",
    ("+ writes[hot].sum()", "+ writes[hot].sum() / num_servers"),
)
changed("hot_keys", "writes at home", "writes at home only",
        ("torch.where(hot, 0.0, reads + writes)", "torch.where(hot, writes, reads + writes)"), (" + writes[hot].sum()", ""))  # fmt: skip
changed(
    "hot_keys",
    "reads everywhere",
    "every copy serves every read",
    ("reads[hot].sum() / num_servers", "reads[hot].sum()"),
)
changed(
    "hot_keys", "the first", "the first keys taken for hot", ("reads.topk(num_hot).indices", "torch.arange(num_hot)")
)
changed("hot_keys", "by writes", "hot by writes", ("reads.topk(num_hot)", "writes.topk(num_hot)"))
changed("hot_keys", "assigns at home", "one key for each server",
        (".index_add_(0, home, at_home)", "\n    loads[home] += at_home"))  # fmt: skip

# ---- server_hybrid

REDUCE = "            dist.all_reduce(parameter.grad, group=group)\n"
changed("server_hybrid", "no all_reduce", "layers not averaged",
        (REDUCE, ""), ("            parameter.grad /= num_workers\n", "            pass\n"))  # fmt: skip
changed(
    "server_hybrid", "sums", "sum instead of mean for the layers", ("            parameter.grad /= num_workers\n", "")
)
changed("server_hybrid", "pushes the whole", "rows not divided", ("rows.grad / num_workers", "rows.grad"))
changed(
    "server_hybrid", "divides twice", "rows divided twice", ("rows.grad / num_workers", "rows.grad / num_workers**2")
)
changed(
    "server_hybrid", "no zero_grad", "gradients of the step before are still there", ("    optimizer.zero_grad()\n", "")
)
changed(
    "server_hybrid", "pushes nothing", "nothing was pushed", ("    push(keys.flatten(), rows.grad / num_workers)\n", "")
)
changed("server_hybrid", "attached", "the loss hangs on its graph", ("return loss.detach()", "return loss"))
changed("server_hybrid", "the world", "all ranks in place of the group", ("group=group", "group=None"))

changed(
    "server_hybrid",
    "reduces what is not there",
    "a parameter without a gradient",
    ("parameter.grad is not None", "True"),
)
changed("server_hybrid", "rows are no leaf", "rows without a gradient", (".requires_grad_()", ""))
changed(
    "server_hybrid",
    "counts all ranks",
    "all ranks counted in place of the group's",
    ("dist.get_world_size(group)", "dist.get_world_size()"),
)

# ---- replicated_server

DONE = "return self.backup.push(worker, number, gradient).then(lambda answer: answer.value() and version)"
changed("replicated_server", "acknowledges at once", "acknowledged before the backup has it",
        (DONE, "self.backup.push(worker, number, gradient)"))  # fmt: skip
changed("replicated_server", "waits", "waits inside push", (DONE, "self.backup.push(worker, number, gradient).wait()"))
changed(
    "replicated_server",
    "returns the version",
    "returns no Future",
    ("        return done\n", "        return version\n"),
)
changed(
    "replicated_server",
    "no memory",
    "a repeated gradient counts twice",
    ("if (worker, number) not in self.applied:", "if True:"),
)
changed("replicated_server", "passes on new ones only", "a repeated gradient is not passed on",
        ("            version = self.version\n", "            else:\n                known: Future = Future()\n                known.set_result(self.version)\n                return known\n            version = self.version\n"))  # fmt: skip
changed("replicated_server", "tells nobody", "the backup is told nothing", ("if self.backup is not None:", "if False:"))
changed("replicated_server", "hides the failure", "the backup's failure is hidden",
        ("lambda answer: answer.value() and version", "lambda answer: version"))  # fmt: skip
changed(
    "replicated_server",
    "the first only",
    "stops at the first replica",
    ("            continue\n", "            raise\n"),
)
changed("replicated_server", "pushes to all", "asks everybody",
        ("    for place, replica in enumerate(replicas):\n        try:\n            replica.push(worker, number, gradient).wait()\n        except RuntimeError:\n            continue\n        return place\n",
         "    answered = []\n    for place, replica in enumerate(replicas):\n        try:\n            replica.push(worker, number, gradient).wait()\n        except RuntimeError:\n            continue\n        answered.append(place)\n    if answered:\n        return answered[0]\n"))  # fmt: skip
changed("replicated_server", "says nothing", "nobody answers, and nobody says so",
        ("    raise RuntimeError(f\"gradient {number} of worker {worker}: none of {len(replicas)} replicas answers\")\n", "    return -1\n"))  # fmt: skip
changed("replicated_server", "numbers the retry anew", "another number for the retry",
        ("replica.push(worker, number, gradient).wait()", "replica.push(worker, number + place, gradient).wait()"))  # fmt: skip

changed("replicated_server", "keeps numbers", "numbers without their workers",
        ("(worker, number) not in self.applied", "number not in self.applied"), ("self.applied.add((worker, number))", "self.applied.add(number)"))  # fmt: skip
changed("replicated_server", "keeps the last number", "the largest number only",
        ("(worker, number) not in self.applied", "number > max((n for w, n in self.applied if w == worker), default=-1)"))  # fmt: skip
changed("replicated_server", "waits for no answer", "does not wait for the answer",
        ("replica.push(worker, number, gradient).wait()", "replica.push(worker, number, gradient)"))  # fmt: skip
changed("replicated_server", "returns what it heard", "returns the answer",
        ("            replica.push(worker, number, gradient).wait()\n", "            place = replica.push(worker, number, gradient).wait()\n"))  # fmt: skip

# ---- checkpoints

changed("checkpoints", "one name", "one file for all", ('f"{version:012}.checkpoint"', '"last.checkpoint"'))
changed("checkpoints", "unpadded", "names that sort like words", ("{version:012}", "{version}"))
changed("checkpoints", "oldest first", "the oldest", (", reverse=True", ""))
changed("checkpoints", "no try", "a damaged file ends it",
        ("        try:\n            found = torch.load(path, weights_only=True)\n        except Exception:  # damaged in any way: an older one will do\n            continue\n",
         "        found = torch.load(path, weights_only=True)\n"))  # fmt: skip
changed("checkpoints", "takes what it finds", "what broke off is taken for whole",
        ("            continue\n", "            return int(path.stem), torch.zeros(0)\n"))  # fmt: skip
changed("checkpoints", "no fsync", "not brought to the disk", ("        os.fsync(file.fileno())\n", ""))
changed("checkpoints", "writes in place", "written in the place of the old one",
        ("unfinished.open(", "path.open("), ("    unfinished.replace(path)\n", ""))  # fmt: skip
