"""Wrong answers to ring_attention, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

changed(
    "in order",
    "uneven work",
    (
        "torch.cat([pieces[dist.get_rank()], pieces[-1 - dist.get_rank()]])",
        "torch.arange(num_tokens).chunk(dist.get_world_size())[dist.get_rank()]",
    ),
)
changed("one piece twice", "tokens twice or never", ("pieces[-1 - dist.get_rank()]", "pieces[-1]"))
changed("no ring", "its own keys only", ("for step in range(size):", "for step in range(1):"))
changed(
    "no mask",
    "not causal",
    ('scores = scores.masked_fill(where[None, :] > places[:, None], float("-inf"))', "pass"),
    ("if where[0] > places[-1]:", "if False:"),
)
changed(
    "mask by index",
    "causal by index",
    ("where[None, :] > places[:, None]", "torch.arange(len(where))[None, :] > torch.arange(len(places))[:, None]"),
    ("if where[0] > places[-1]:", "if False:"),
)
changed("no root", "scores not scaled", (" / q.shape[-1] ** 0.5", ""))
changed(
    "values not rescaled",
    "sums not rescaled",
    ("mixed = mixed * old + weights @ values", "mixed = mixed + weights @ values"),
)
changed(
    "the other way round", "not to the next rank",
    ("dist.P2POp(dist.isend, mine, (rank + 1) % size)", "dist.P2POp(dist.isend, mine, (rank - 1) % size)"),
    ("dist.P2POp(dist.irecv, new, (rank - 1) % size)", "dist.P2POp(dist.irecv, new, (rank + 1) % size)"),
)  # fmt: skip
changed(
    "the largest of this lot only",
    "not a number",
    ("grown = torch.maximum(largest, scores.amax(-1, keepdim=True))", "grown = scores.amax(-1, keepdim=True)"),
)
WRONG.wrong(
    "gathered",
    "calls the library",
    """
def ring_attention(q, k, v, places):
    def everything(mine):
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine.contiguous())
        return parts

    keys, values = torch.cat(everything(k), 2), torch.cat(everything(v), 2)
    mask = torch.cat(everything(places)) <= places[:, None]
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
""",
)
EXCHANGE = """                send = dist.P2POp(dist.isend, mine, (rank + 1) % size)
                receive = dist.P2POp(dist.irecv, new, (rank - 1) % size)
                for work in dist.batch_isend_irecv([send, receive]):
                    work.wait()
"""
changed(
    "send, then receive",
    "everybody sends first",
    (
        EXCHANGE,
        "                dist.send(mine, (rank + 1) % size)\n                dist.recv(new, (rank - 1) % size)\n",
    ),
)
changed(
    "posted and read", "message not waited for",
    (EXCHANGE, EXCHANGE.replace("for work in dist.batch_isend_irecv([send, receive]):\n                    work.wait()",
                                "dist.batch_isend_irecv([send, receive])")),
)  # fmt: skip
changed(
    "an outbox filled again before it has left",
    "buffer reused in flight",
    (
        EXCHANGE,
        """                outbox = outboxes.setdefault(mine.dtype, torch.empty_like(mine))
                outbox.copy_(mine)
                pending.append(dist.isend(outbox, (rank + 1) % size))
                dist.recv(new, (rank - 1) % size)
""",
    ),
    ("    for step in range(size):", "    outboxes, pending = {}, []\n    for step in range(size):"),
    ("    return mixed / total", "    for work in pending:\n        work.wait()\n    return mixed / total"),
)
changed(
    "no maximum",
    "exponentials overflow",
    ("grown = torch.maximum(largest, scores.amax(-1, keepdim=True))", "grown = torch.zeros_like(largest)"),
)
changed(
    "masked at home only",
    "not causal",
    ("where[None, :] > places[:, None]", "(where[None, :] > places[:, None]) & (step == 0)"),
    ("if where[0] > places[-1]:", "if False:"),
)
changed(
    "queries go round, too",
    "sent too often",
    (
        "held = [k.contiguous(), v.contiguous(), places]",
        "held = [k.contiguous(), v.contiguous(), places, q.contiguous()]",
    ),
    ("keys, values, where = held", "keys, values, where, _ = held"),
)
changed(
    "N times",
    "sent too often",
    ("for step in range(size):", "for step in range(size + 1):"),
    ("keys, values, where = held", "keys, values, where = held\n        if step == size:\n            break"),
)
WRONG.wrong(
    "all keys at once",
    "too much memory",
    """
def ring_attention(q, k, v, places):
    rank, size = dist.get_rank(), dist.get_world_size()
    lots = [[k.contiguous(), v.contiguous(), places]]
    for _ in range(size - 1):
        lots.append([torch.empty_like(each) for each in lots[-1]])
        for mine, new in zip(lots[-2], lots[-1]):
            send, receive = (
                dist.P2POp(dist.isend, mine, (rank + 1) % size), dist.P2POp(dist.irecv, new, (rank - 1) % size)
            )
            for work in dist.batch_isend_irecv([send, receive]):
                work.wait()
    keys, values, where = (torch.cat(each, dim) for each, dim in zip(zip(*lots), (2, 2, 0)))
    mask = where <= places[:, None]
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
""",
)
WRONG.right(
    "places of 32 bits",
    """
def balanced_places(num_tokens):
    rank, last = dist.get_rank(), 2 * dist.get_world_size() - 1
    pieces = torch.arange(num_tokens, dtype=torch.int32).chunk(last + 1)
    return torch.cat([pieces[rank], pieces[last - rank]])
""",
)
changed(
    "received into k and v",
    "what was given is changed",
    (
        "            held = coming\n",
        "            for mine, new in zip(held, coming):\n                mine.copy_(new)\n",
    ),
)
changed("not divided by the total", "not divided", ("return mixed / total", "return mixed"))
changed("divided by K", "scores not scaled", ("/ q.shape[-1] ** 0.5", "/ q.shape[-1]"))
changed(
    "total not rescaled",
    "sums not rescaled",
    ("total = total * old + weights.sum(-1, keepdim=True)", "total = total + weights.sum(-1, keepdim=True)"),
)
changed("counts the last piece from 1", "the last piece is 2N - 1",
        ("pieces[-1 - dist.get_rank()]", "pieces[len(pieces) - dist.get_rank()]"))  # fmt: skip
changed(
    "forgets that -0 is 0", "the last piece is 2N - 1", ("pieces[-1 - dist.get_rank()]", "pieces[-dist.get_rank()]")
)
changed("hides earlier keys", "causal the other way",
        ("where[None, :] > places[:, None]", "where[None, :] < places[:, None]"),
        ("if where[0] > places[-1]:", "if where[-1] < places[0]:"))  # fmt: skip
PLACES = "torch.cat([pieces[dist.get_rank()], pieces[-1 - dist.get_rank()]])"
changed(
    "every N-th token", "uneven work", (PLACES, "torch.arange(num_tokens)[dist.get_rank() :: dist.get_world_size()]")
)
changed(
    "two neighbouring pieces",
    "uneven work",
    (PLACES, "torch.cat(pieces[2 * dist.get_rank() : 2 * dist.get_rank() + 2])"),
)
changed(
    "the last piece first",
    "tokens twice or never",
    (PLACES, "torch.cat([pieces[-1 - dist.get_rank()], pieces[dist.get_rank()]])"),
)
changed("only earlier keys", "a query does not see itself", ("where[None, :] > places", "where[None, :] >= places"))
HELD = "for mine, new in zip(held, coming, strict=True):"
changed(
    "sends its own again",
    "the same lot again",
    (HELD, HELD.replace("held", "[k.contiguous(), v.contiguous(), places]")),
)
changed(
    "places stay", "causal by index",
    (HELD, "coming[2] = places\n            " + HELD.replace("held,", "held[:2],").replace("coming,", "coming[:2],")),
)  # fmt: skip
changed("one round too few", "a lot is missing", ("for step in range(size):", "for step in range(size - 1):"))
changed("ends at a later lot", "a rank stops passing on", ("            continue  # all", "            break  # all"))
changed(
    "the root of all heads' width", "scores not scaled", ("q.shape[-1] ** 0.5", "(q.shape[1] * q.shape[-1]) ** 0.5")
)
changed("the root of the tokens", "scores not scaled", ("q.shape[-1] ** 0.5", "q.shape[-2] ** 0.5"))
LOTS = (
    (
        '    largest = q.new_full((*q.shape[:-1], 1), float("-inf"))\n    total, mixed = torch.zeros_like(largest), torch.zeros_like(q)\n',
        "    mixed = torch.zeros_like(q)\n",
    ),
    ("        grown = torch.maximum(largest, scores.amax(-1, keepdim=True))\n", ""),
    ("        weights, old = (scores - grown).exp(), (largest - grown).exp()\n", ""),
    ("        total = total * old + weights.sum(-1, keepdim=True)\n", ""),
    (
        "        mixed = mixed * old + weights @ values\n        largest = grown\n",
        "        mixed = mixed + scores.softmax(-1).nan_to_num() @ values\n",
    ),
)
changed("the mean of the lots", "a softmax of each lot", *LOTS, ("return mixed / total", "return mixed / size"))
changed("the sum of the lots", "a softmax of each lot", *LOTS, ("return mixed / total", "return mixed"))
LATER = "        if where[0] > places[-1]:\n"
changed("skips ranks behind it", "later ranks skipped", (LATER, "        if (rank - step) % size > rank:\n"))
KEPT = "held = [k.contiguous(), v.contiguous(), places]"
changed(
    "balanced places for all",
    "places guessed",
    (KEPT, "held = [k.contiguous(), v.contiguous()]"),
    (
        "    keys, values, where = held",
        "    keys, values = held\n        pieces = torch.arange(size * len(places)).chunk(2 * size)\n"
        "        where = torch.cat([pieces[(rank - step) % size], pieces[-1 - (rank - step) % size]])",
    ),
)
changed(
    "the lower triangle of each lot",
    "causal by index",
    ("where[None, :] > places[:, None]", "torch.arange(len(where))[None, :] > torch.arange(len(places))[:, None]"),
)
changed(
    "the mean of the lots seen",
    "a softmax of each lot",
    *LOTS,
    ("    mixed = torch.zeros_like(q)\n", "    mixed, lots = torch.zeros_like(q), 0\n"),
    ("nan_to_num() @ values\n", "nan_to_num() @ values\n        lots += 1\n"),
    ("return mixed / total", "return mixed / lots"),
)
