"""Wrong answers to run_plan, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


def _run(body: str, kept: str = "if chunks[r.chunk].numel()") -> str:
    return f"""
def run_plan(plan, chunks, group=None, combine=torch.add):
    steps = {{}}
    for record in plan:
        steps.setdefault(record.step, []).append(record)
    for step, records in sorted(steps.items()):
        records = [r for r in records {kept}]
        reduced = {{r.chunk for r in records if isinstance(r, Reduce)}}
        incoming = {{}}
        ops = []
{body}
"""


_POST = """
        for r in records:
            if isinstance(r, Send):
                ops.append(dist.P2POp(dist.isend, chunks[r.chunk], group=group, group_peer=r.peer))
            elif isinstance(r, Recv):
                incoming[r.chunk] = torch.empty_like(chunks[r.chunk])
                ops.append(dist.P2POp(dist.irecv, incoming[r.chunk], group=group, group_peer=r.peer))
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
"""


def _posted(name: str, mistake: str, then: str) -> None:
    wrong(name, mistake, _run(_POST + then))


_COMBINED = """
        for chunk, data in incoming.items():
            if chunk in reduced:
                combine(chunks[chunk], data, out=chunks[chunk])
            else:
                chunks[chunk].copy_(data)
"""
_posted(
    "always adds",
    "always adds",
    """
        for chunk, data in incoming.items():
            chunks[chunk] += data
""",
)
_posted(
    "never adds",
    "never adds",
    """
        for chunk, data in incoming.items():
            chunks[chunk].copy_(data)
""",
)
wrong(
    "receives into the chunk and adds it to itself",
    "adds the chunk to itself",
    _run(
        _POST.replace("torch.empty_like(chunks[r.chunk])", "chunks[r.chunk]")
        + """
        for chunk in reduced:
            chunks[chunk] += incoming[chunk]
"""
    ),
)
wrong(
    "one blocking call after another",
    "one message at a time",
    _run("""
        for r in records:
            if isinstance(r, Send):
                dist.send(chunks[r.chunk], group=group, group_dst=r.peer)
            elif isinstance(r, Recv):
                incoming[r.chunk] = torch.empty_like(chunks[r.chunk])
                dist.recv(incoming[r.chunk], group=group, group_src=r.peer)
        for chunk, data in incoming.items():
            chunks[chunk].copy_(chunks[chunk] + data if chunk in reduced else data)
"""),
)
_posted(
    "puts new tensors into the list",
    "chunks not changed in place",
    """
        for chunk, data in incoming.items():
            chunks[chunk] = chunks[chunk] + data if chunk in reduced else data
""",
)
wrong(
    "peers as global ranks",
    "group ranks taken for global ranks",
    _run(_POST.replace("group=group, group_peer=r.peer", "r.peer, group") + _COMBINED),
)
wrong(
    "counts steps without gaps",
    "steps counted without gaps",
    """
def run_plan(plan, chunks, group=None, combine=torch.add):
    for step in range(len({r.step for r in plan})):
        records = [r for r in plan if r.step == step]
        reduced = {r.chunk for r in records if isinstance(r, Reduce)}
        incoming, ops = {}, []
"""
    + _POST
    + """
        for chunk, data in incoming.items():
            chunks[chunk].copy_(chunks[chunk] + data if chunk in reduced else data)
""",
)
wrong(
    "makes P2POps and never posts them",
    "nothing sent",
    _run("""
        for r in records:
            if isinstance(r, Send):
                ops.append(dist.P2POp(dist.isend, chunks[r.chunk], group=group, group_peer=r.peer))
            elif isinstance(r, Recv):
                incoming[r.chunk] = torch.zeros_like(chunks[r.chunk])
                ops.append(dist.P2POp(dist.irecv, incoming[r.chunk], group=group, group_peer=r.peer))
        for chunk, data in incoming.items():
            chunks[chunk].copy_(chunks[chunk] + data if chunk in reduced else data)
"""),
)

_posted(
    "adds whatever combine is",
    "combine ignored",
    """
        for chunk, data in incoming.items():
            chunks[chunk].copy_(chunks[chunk] + data if chunk in reduced else data)
""",
)
_posted(
    "no Reduce changed its chunk",
    "no Reduce changed its chunk",
    """
        for chunk, data in incoming.items():
            combine(chunks[chunk], data) if chunk in reduced else chunks[chunk].copy_(data)
""",
)
WRONG.changed(
    "reduces after the last step",
    "no Reduce changed its chunk",
    (
        "        for chunk, incoming in arriving:\n            combine(",
        "    for chunk, incoming in arriving:\n        combine(",
    ),
)
wrong(
    "posts no Send",
    "one message at a time",
    _run(
        _POST.replace("ops.append(dist.P2POp(dist.isend, chunks[r.chunk], group=group, group_peer=r.peer))", "pass")
        + _COMBINED
    ),
)
wrong("sends messages of empty chunks", "empty messages", _run(_POST + _COMBINED, kept=""))
wrong("posts an empty batch", "empty batch", _run(_POST.replace(" if ops else []", "") + _COMBINED))
wrong(
    "group forgotten",
    "group ranks taken for global ranks",
    _run(_POST.replace("group=group, group_peer=r.peer", "r.peer") + _COMBINED),
)
wrong(
    "receives into float32 whatever is sent",
    "buffer of another type",
    _run(_POST.replace("torch.empty_like(chunks[r.chunk])", "torch.empty(chunks[r.chunk].numel())") + _COMBINED),
)
wrong("never waits", "not waited for", _run(_POST.replace("            work.wait()", "            pass") + _COMBINED))
wrong(
    "posts one by one and never waits",
    "not waited for",
    _run(
        """
        for r in records:
            if isinstance(r, Send):
                dist.isend(chunks[r.chunk], group=group, group_dst=r.peer)
            elif isinstance(r, Recv):
                incoming[r.chunk] = torch.empty_like(chunks[r.chunk])
                dist.irecv(incoming[r.chunk], group=group, group_src=r.peer)
"""
        + _COMBINED
    ),
)
wrong(
    "waits for what it sends alone",
    "not waited for",
    _run(
        """
        for r in records:
            if isinstance(r, Send):
                ops.append(dist.isend(chunks[r.chunk], group=group, group_dst=r.peer))
            elif isinstance(r, Recv):
                incoming[r.chunk] = torch.empty_like(chunks[r.chunk])
                dist.irecv(incoming[r.chunk], group=group, group_src=r.peer)
        for work in ops:
            work.wait()
"""
        + _COMBINED
    ),
)
wrong("a barrier after each step", "calls the library", _run(_POST + _COMBINED + "        dist.barrier(group)\n"))
wrong(
    "all that is added lands in one buffer",
    "one buffer for two messages",
    _run(
        _POST.replace(
            "incoming[r.chunk] = torch.empty_like(chunks[r.chunk])",
            "zone = chunks[0].new_empty(max(map(len, chunks))) if not incoming else zone\n                "
            "incoming[r.chunk] = (\n                    "
            "zone[: len(chunks[r.chunk])] if r.chunk in reduced else torch.empty_like(chunks[r.chunk])\n"
            "                )",
        )
        + _COMBINED
    ),
)
wrong(
    "posts each receive twice",
    "more receives than the plan has",
    _run(
        _POST.replace(
            "        for work in", "        ops += [each for each in ops if each.op is dist.irecv]\n        for work in"
        )
        + _COMBINED
    ),
)
WRONG.changed(
    "looks for a Reduce in the whole plan",
    "the Reduce of another step",
    ("for record in step if isinstance(record, Reduce)", "for record in plan if isinstance(record, Reduce)"),
)
WRONG.changed(
    "incoming first",
    "combine's arguments swapped",
    ("combine(chunk, incoming, out=chunk)", "combine(incoming, chunk, out=chunk)"),
)
WRONG.changed(
    "all Reduces at the end",
    "reduced after the last step",
    ("    landing_zone = torch.empty_like(longest)\n", "    landing_zone, landed = torch.empty_like(longest), []\n"),
    (
        "        for chunk, incoming in arriving:\n            combine(chunk, incoming, out=chunk)\n",
        "        landed += [(chunk, incoming.clone()) for chunk, incoming in arriving]\n"
        "    for chunk, incoming in landed:\n        combine(chunk, incoming, out=chunk)\n",
    ),
)
WRONG.changed(
    "all steps in one batch",
    "a step begins before the last one ends",
    ("    landing_zone = torch.empty_like(longest)", "    works, landed = [], []"),
    ("torch.empty_like(chunk) if arriving else landing_zone[: chunk.numel()]", "torch.empty_like(chunk)"),
    (
        "        for work in dist.batch_isend_irecv(batch) if batch else []:\n            work.wait()\n"
        "        for chunk, incoming in arriving:\n            combine(chunk, incoming, out=chunk)\n",
        "        works += dist.batch_isend_irecv(batch) if batch else []\n        landed += arriving\n"
        "    for work in works:\n        work.wait()\n"
        "    for chunk, incoming in landed:\n        combine(chunk, incoming, out=chunk)\n",
    ),
)
WRONG.changed(
    "adds all that arrives in a step with a Reduce",
    "the Reduce of another chunk",
    ("if record.chunk in reduced:", "if reduced:"),
)
WRONG.changed(
    "leaves out a step with an empty chunk",
    "a step with an empty chunk left out",
    (
        "        step = [record for record in records if chunks[record.chunk].numel() > 0]\n",
        "        step = list(records)\n        if any(chunks[record.chunk].numel() == 0 for record in step):\n"
        "            continue\n",
    ),
)
WRONG.changed(
    "leaves out the sends of empty chunks alone",
    "receives for empty chunks",
    ("in records if chunks", "in records if isinstance(record, Recv) or chunks"),
)
WRONG.changed(
    "one send and one receive a step",
    "taken for a ring's plan",
    (
        "        reduced = {",
        "        kinds = [[each for each in step if isinstance(each, kind)][:1] for kind in (Send, Recv, Reduce)]\n"
        "        step = [each for found in kinds for each in found]\n        reduced = {",
    ),
)
WRONG.changed(
    "the neighbours for the peers",
    "taken for a ring's plan",
    (
        "        for record in step:\n",
        "        rank, size = dist.get_rank(group), dist.get_world_size(group)\n"
        "        beside = {Send: (rank + 1) % size, Recv: (rank - 1) % size}\n"
        "        for record in step:\n",
    ),
    ("group_peer=record.peer", "group_peer=beside[type(record)]"),
)
WRONG.changed(
    "reduces in the first N - 1 steps",
    "taken for a ring's plan",
    (
        "if record.chunk in reduced:",
        "if record.chunk in reduced and record.step < dist.get_world_size(group) - 1:",
    ),
)
WRONG.changed(
    "receives first, then sends",
    "one message at a time",
    (
        "        for work in dist.batch_isend_irecv(batch) if batch else []:\n            work.wait()\n",
        "        for kind in (dist.irecv, dist.isend):\n            some = [op for op in batch if op.op is kind]\n"
        "            for work in dist.batch_isend_irecv(some) if some else []:\n                work.wait()\n",
    ),
)
WRONG.changed(
    "keeps what combine returns",
    "no Reduce changed its chunk",
    ("combine(chunk, incoming, out=chunk)", "chunk = combine(chunk, incoming)"),
)
wrong(
    "all that arrives lands in one buffer",
    "one buffer for two messages",
    _run(
        _POST.replace("torch.empty_like(chunks[r.chunk])", "landing[: chunks[r.chunk].numel()]").replace(
            "        for r in records:",
            "        landing = torch.empty_like(max(chunks, key=torch.Tensor.numel))\n        for r in records:",
            1,
        )
        + _COMBINED
    ),
)
_REDUCED = "reduced = {record.chunk for record in step if isinstance(record, Reduce)}"
_SEEN = """came, reduced = set(), set()
        for record in step:
            if isinstance(record, Recv):
                came.add(record.chunk)
            elif isinstance(record, Reduce) and record.chunk in came:
                reduced.add(record.chunk)"""
_PAIRS = """reduced = {
            record.chunk for before, record in zip(step, step[1:])
            if isinstance(before, Recv) and isinstance(record, Reduce)
        }"""
WRONG.changed("a Reduce after its Recv only", "a Reduce before its Recv", (_REDUCED, _SEEN))
WRONG.changed("a Reduce right behind its Recv only", "a Reduce before its Recv", (_REDUCED, _PAIRS))
_posted(
    "copies what combine returns",
    "combine without out",
    """
        for chunk, data in incoming.items():
            chunks[chunk].copy_(combine(chunks[chunk], data) if chunk in reduced else data)
""",
)
wrong(
    "one dict for all steps",
    "what arrived before, once more",
    _run(_POST + _COMBINED)
    .replace("        incoming = {}\n", "")
    .replace("    steps = {}\n", "    steps = {}\n    incoming = {}\n"),
)
_WAITED = "        for work in dist.batch_isend_irecv(ops) if ops else []:\n            work.wait()\n"
_POSTED = "        works = dist.batch_isend_irecv(ops) if ops else []\n"
wrong(
    "combines before it waits",
    "not waited for",
    _run(_POST.replace(_WAITED, _POSTED) + _COMBINED + "        for work in works:\n            work.wait()\n"),
)
wrong(
    "waits for the last message alone",
    "not waited for",
    _run(_POST.replace(_WAITED, _POSTED + "        for work in works[-1:]:\n            work.wait()\n") + _COMBINED),
)
wrong(
    "looks up what arrives before it has posted it",
    "a Reduce before its Recv",
    _run(
        _POST.replace(
            "        for r in records:\n",
            "        here = []\n        for r in records:\n            if isinstance(r, Reduce):\n"
            "                here.append((r.chunk, incoming.pop(r.chunk)))\n",
        )
        + """
        for chunk, data in here:
            combine(chunks[chunk], data, out=chunks[chunk])
        for chunk, data in incoming.items():
            chunks[chunk].copy_(data)
"""
    ),
)
