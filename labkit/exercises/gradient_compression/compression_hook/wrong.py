"""Wrong answers to compression_hook, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


PACKET = "packet = feedback.compress(bucket.buffer() / num_ranks, key)"
KEY = "key = (bucket.index(), bucket.buffer().numel())"
THEN = "return work.get_future().then(lambda _: feedback.decompress(packet))"
ADD = "return sum(feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered, strict=True))"
changed("does not divide", "sum instead of mean", (" / num_ranks, key)", ", key)"))
changed(
    "divides afterwards",
    "divided after compressing",
    (" / num_ranks, key)", ", key)"),
    ("feedback.decompress(packet))", "feedback.decompress(packet) / num_ranks)"),
    (ADD, ADD + " / num_ranks"),
)
changed(
    "divides before and after",
    "divided twice",
    ("feedback.decompress(packet))", "feedback.decompress(packet) / num_ranks)"),
    (ADD, ADD + " / num_ranks"),
)
changed(
    "the bucket's number alone",
    "the residual of an old bucket",
    (KEY, "key = bucket.index()"),
)
changed("one key", "one key for several buckets", (KEY, "key = bucket.buffer().numel() // 1000"))
changed(
    "the address of the buffer",
    "another key in every step",
    (KEY, "key = state.sent_bytes + bucket.index()"),
)
changed(
    "no memory",
    "the memory is not used",
    (PACKET, "packet = feedback.compressor.compress(bucket.buffer() / num_ranks)"),
)
changed(
    "returns the tensor",
    "no future",
    (THEN, "work.wait()\n        return feedback.decompress(packet)"),
    (
        "return torch.futures.collect_all([work.get_future() for work in works]).then(add_up)",
        "[work.wait() for work in works]\n    return add_up(None)",
    ),
)
changed(
    "waits for all works",
    "waits inside the hook",
    (
        "    return torch.futures.collect_all(",
        "    [work.wait() for work in works]\n    return torch.futures.collect_all(",
    ),
)
changed(
    "blocking calls",
    "waits inside the hook",
    (
        THEN,
        "work.wait()\n        done = Future()\n        done.set_result(feedback.decompress(packet))\n        "
        "return done",
    ),
)
COLLECTED = "return torch.futures.collect_all([work.get_future() for work in works]).then(add_up)"
changed(
    "waits for its own future",
    "waits inside the hook",
    (THEN, THEN.replace("return", "mean =") + "\n        mean.wait()\n        return mean"),
    (COLLECTED, COLLECTED.replace("return", "mean =") + "\n    mean.wait()\n    return mean"),
)
changed(
    "waits for futures of gathered parts",
    "waits inside the hook",
    (COLLECTED, "for work in works:\n        work.get_future().wait()\n    " + COLLECTED),
)
changed(
    "waits for a future that a callback completes",
    "waits inside the hook",
    (
        THEN,
        """mean = Future()
        work.get_future().add_done_callback(lambda _: mean.set_result(feedback.decompress(packet)))
        mean.wait()
        return mean""",
    ),
)
changed(
    "always gathers",
    "gathers what can be added",
    ("if feedback.compressor.addable:", "if False:"),
    (ADD, "if feedback.compressor.addable:\n            return sum(g for g in gathered[0])\n        " + ADD),
)
changed("always adds", "added what cannot be added", ("if feedback.compressor.addable:", "if True:"))
changed(
    "adds every part",
    "the other parts are added too",
    (
        "        work = dist.all_reduce(packet",
        "        for part in packet.parts[1:]:\n            dist.all_reduce(part, group=state.group)\n        "
        "work = dist.all_reduce(packet",
    ),
)
changed("its own packet", "only my own packet", (ADD, "return feedback.decompress(packet)"))
changed(
    "divides the buffer in place",
    "the buffer was changed",
    ("bucket.buffer() / num_ranks, key", "bucket.buffer().div_(num_ranks), key"),
)
changed("does not count", "bytes not counted", ("    state.sent_bytes += wire_bytes(packet)\n", ""))
changed(
    "all-reduces what was unpacked",
    "added what cannot be added",
    (
        "    if feedback.compressor.addable:\n",
        """    if not feedback.compressor.addable:
        whole = feedback.decompress(packet)
        return dist.all_reduce(whole, async_op=True).get_future().then(lambda _: whole)
    if feedback.compressor.addable:
""",
    ),
)
GATHERED_PARTS = "[torch.empty_like(part) for _ in range(num_ranks)]"
changed(
    "one tensor N times",
    "one buffer for all ranks",
    (GATHERED_PARTS, "[torch.empty_like(part)] * num_ranks"),
)
changed(
    "all-reduces what was unpacked of packets that may be added",
    "more than packets travels",
    (
        "        work = dist.all_reduce(packet.parts[0]",
        """        whole = feedback.decompress(packet)
        work = dist.all_reduce(whole, group=state.group, async_op=True)
        return work.get_future().then(lambda _: whole)
        work = dist.all_reduce(packet.parts[0]""",
    ),
)
changed(
    "the whole world",
    "all ranks of the world",
    ("group=state.group", "group=None"),
    ("get_world_size(state.group)", "get_world_size()"),
)
changed(
    "adds what begins with a float",
    "added what cannot be added",
    ("if feedback.compressor.addable:", "if packet.parts[0].is_floating_point():"),
)
changed(
    "adds from its own packet on",
    "another order on each rank",
    (
        ADD,
        "of_ranks, me = list(zip(*gathered, strict=True)), dist.get_rank(state.group)\n        "
        + ADD.replace("zip(*gathered, strict=True)", "of_ranks[me:] + of_ranks[:me]"),
    ),
)
THEN_GATHERS = """    def second(_):
        parts = [torch.empty_like(packet.parts[1]) for _ in range(num_ranks)]
        dist.all_gather(parts, packet.parts[1], group=state.group)
        pairs = zip(gathered[0], parts, strict=True)
        return sum(feedback.decompress(replace(packet, parts=pair)) for pair in pairs)

    return works[0].get_future().then(second)
"""
changed(
    "gathers the second part in then",
    "communicates in then",
    ("    return torch.futures.collect_all([work.get_future() for work in works]).then(add_up)\n", THEN_GATHERS),
    ("    for part in packet.parts:\n", "    for part in packet.parts[:1]:\n"),
)
changed("the argument has another name", "arguments with other names", ("bucket", "full"))
changed(
    "forgets when a step begins", "lost on its way",
    ("    packet = feedback", "    if bucket.index() == 0:\n        feedback.residuals.clear()\n    packet = feedback"),
)  # fmt: skip
changed(
    "adds what the others sent", "own packet left out",
    (ADD, "others, me = list(zip(*gathered)), dist.get_rank(state.group)\n        "
     + ADD.replace("zip(*gathered, strict=True)", "others[:me] + others[me + 1 :]")),
)  # fmt: skip
changed("nothing is gathered", "a future of something else", ("        gathered.append(of_ranks)\n", ""))
COUNTED = "state.sent_bytes += wire_bytes(packet)"
changed("counts what it receives", "bytes not counted", (COUNTED, COUNTED + " * num_ranks"))
changed(
    "counts the values alone",
    "bytes not counted",
    (COUNTED, COUNTED.replace("packet)", "replace(packet, parts=packet.parts[:1]))")),
)
changed("counts the bucket", "bytes not counted", (COUNTED, "state.sent_bytes += bucket.buffer().nbytes"))
changed("counts the last bucket alone", "bytes not counted", (COUNTED, COUNTED.replace("+=", "=")))
changed(
    "writes into the bucket at last", "the buffer was changed",
    (THEN, "return work.get_future().then(lambda _: bucket.buffer().copy_(feedback.decompress(packet)))"),
    (ADD, ADD.replace("return ", "return bucket.buffer().copy_(") + ")"),
)  # fmt: skip
changed(
    "counts what arrives", "bytes not counted",
    (COUNTED, "state.sent_bytes += wire_bytes(packet) * (1 if feedback.compressor.addable else num_ranks - 1)"),
)  # fmt: skip
changed(
    "the sum alone is unpacked", "parts left out",
    (THEN, THEN.replace("_: feedback.decompress(packet)", "f: feedback.decompress(replace(packet, parts=f.value()))")),
)  # fmt: skip
GATHERED = "for parts in zip(*gathered, strict=True))"
changed(
    "its own gradient as it is",
    "its own gradient for its packet",
    (ADD, ADD + " - feedback.decompress(packet) + bucket.buffer() / num_ranks"),
)
changed(
    "gathers values alone",
    "parts of several ranks mixed",
    (GATHERED, "for parts in [(packet.parts[0], kept) for kept in gathered[1]])"),
)
changed(
    "one dtype for all parts",
    "cast on its way",
    ("    for part in packet.parts:\n", "    for part in [each.float() for each in packet.parts]:\n"),
    ("parts=parts))", "parts=tuple(a.to(b.dtype) for a, b in zip(parts, packet.parts))))"),
)
changed(
    "a residual of the mean",
    "writes a residual",
    (
        "lambda _: feedback.decompress(packet))",
        "lambda _: (\n            feedback.residuals.update("
        "{key: bucket.buffer() / num_ranks - feedback.decompress(packet)})\n"
        "            or feedback.decompress(packet)\n        ))",
    ),
)
changed("the part that came", "shape lost", ("lambda _: feedback.decompress(packet))", "lambda done: done.value()[0])"))
changed(
    "always float32",
    "dtype lost",
    ("lambda _: feedback.decompress(packet))", "lambda _: feedback.decompress(packet).float())"),
)
changed(
    "the largest of the packets",
    "a wrong mean",
    (
        ADD,
        "return torch.stack([feedback.decompress(replace(packet, parts=parts)) "
        "for parts in zip(*gathered, strict=True)]).amax(0)",
    ),
)
