"""Wrong answers to context_ring, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

SKIPPED = "        if where[0] > places[-1]:\n            continue  # all of them are later than all queries\n"
FORWARD_MASK = 'scores = scores.masked_fill(where[None, :] > places[:, None], float("-inf"))'
BACKWARD_MASK = ".masked_fill(where[None, :] > places[:, None], 0.0)"
BY_INDEX = "torch.arange(len(where))[None, :] > torch.arange(len(places))[:, None]"
PASSED = "        held = passed_on(held, place, size, group)\n    return of_q"
ON_KEYS = "        of_keys += slopes.transpose(-1, -2) @ q\n"
ON_VALUES = "        of_values += weights.transpose(-1, -2) @ gradient\n"
WEIGHTS = f"        weights = (scores - logsumexp).exp(){BACKWARD_MASK}\n"
EXCHANGE = """        send = dist.P2POp(dist.isend, mine, group=group, group_peer=(place + 1) % size)
        receive = dist.P2POp(dist.irecv, new, group=group, group_peer=(place - 1) % size)
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()
"""

changed("forward without a ring", "forward on its own keys", ("for step in range(size):", "for step in range(1):"))
changed(
    "forward's mask by index", "forward causal by index",
    (FORWARD_MASK, FORWARD_MASK.replace("where[None, :] > places[:, None]", BY_INDEX)), (SKIPPED, ""),
)  # fmt: skip
changed("forward without a mask", "forward not causal", (FORWARD_MASK, "pass"), (SKIPPED, ""))
changed(
    "forward without the root", "forward scores not scaled", ("keys.transpose(-1, -2) / q.shape[-1] ** 0.5", "keys.mT")
)
changed(
    "places of the keys guessed", "forward with keys in order",
    (FORWARD_MASK, FORWARD_MASK.replace("where[None, :]", "(guessed if step else where)[None, :]")),
    (SKIPPED, "        guessed = torch.arange(len(where)) + (place - step) % size * len(where)\n"),
)  # fmt: skip
changed(
    "forward's mask turned round", "forward causal the other way",
    (FORWARD_MASK, FORWARD_MASK.replace(" > ", " < ")), (SKIPPED, ""),
)  # fmt: skip
changed(
    "whole blocks", "forward block by block",
    (FORWARD_MASK, "if step == 0:\n            " + FORWARD_MASK), (SKIPPED, SKIPPED.replace("places[-1]", "places[0]")),
)  # fmt: skip
changed(
    "each block's own attention averaged", "forward with a softmax for each block",
    ("mixed = mixed * old + weights @ values", "mixed = mixed + scores.softmax(-1).nan_to_num(0.0) @ values"),
    ("return mixed / total,", "return mixed / size,"),
)  # fmt: skip
changed(
    "leaves when all is later",
    "a rank leaves the ring",
    ("            continue  # all of them", "            break  # all of them"),
)
changed("the sum not rescaled", "sums not rescaled", ("total * old + weights", "total + weights"))
changed("values not rescaled", "sums not rescaled", ("mixed * old + weights", "mixed + weights"))
changed(
    "the largest of this block only", "not a number",
    ("torch.maximum(largest, scores.amax(-1, keepdim=True))", "scores.amax(-1, keepdim=True)"),
)  # fmt: skip
changed("the logarithm alone", "the largest is missing", ("largest + total.log()", "total.log()"))
changed("no logarithm", "the sum itself", ("largest + total.log()", "largest.exp() * total"))
changed("the largest alone", "not the logarithm of the sum", ("largest + total.log()", "largest"))
changed(
    "backward without a ring",
    "its own keys only",
    ("for _ in range(size):", "for _ in range(1):"),
    (PASSED, "    return of_q"),
)
changed(
    "sums of its own queries", "gradients left behind",
    (ON_KEYS, ON_KEYS.replace("of_keys", "mine_k")), (ON_VALUES, ON_VALUES.replace("of_values", "mine_v")),
    ("    of_q = torch.zeros_like(q)\n", "    of_q, mine_k, mine_v = (torch.zeros_like(each) for each in (q, k, v))\n"),
    ("return of_q, held[3], held[4]", "return of_q, mine_k, mine_v"),
)  # fmt: skip
changed(
    "stops a pass early", "one pass short",
    (PASSED, "        held = passed_on(held, place, size, group) if _ < size - 1 else held\n    return of_q"),
)  # fmt: skip
changed(
    "the row's term of this block", "the row's term over a block",
    (" - row)", " - (weights * (gradient @ values.mT)).sum(-1, keepdim=True))"),
)  # fmt: skip
changed(
    "nothing subtracted", "not a number",
    ("grown = torch.maximum(largest, scores.amax(-1, keepdim=True))", "grown = torch.zeros_like(largest)"),
)  # fmt: skip
changed("no term of the row", "the row's term is missing", (" - row)", ")"))
changed(
    "a softmax of this block", "a softmax for each block",
    (WEIGHTS, '        later = where[None, :] > places[:, None]\n'
              '        weights = scores.masked_fill(later, float("-inf")).softmax(-1).nan_to_num(0.0)\n'),
)  # fmt: skip
changed(
    "the sum of the gradient", "the row's term without the output", (" - row)", " - gradient.sum(-1, keepdim=True))")
)
changed("no root behind", "gradients not scaled", ("- row) / root", "- row)"))
changed("no root in scores", "scores not scaled", ("keys.transpose(-1, -2) / root", "keys.transpose(-1, -2)"))
changed("backward without a mask", "not causal", (BACKWARD_MASK, ""))
changed(
    "backward's mask by index",
    "causal by index",
    (WEIGHTS, WEIGHTS.replace("where[None, :] > places[:, None]", BY_INDEX)),
)
changed(
    "ranks of the world", "not to the next rank",
    ("dist.get_world_size(group), dist.get_rank(group)", "dist.get_world_size(), dist.get_rank()"),
    ("group=group, group_peer=(place + 1) % size", "peer=(place + 1) % size"),
    ("group=group, group_peer=(place - 1) % size", "peer=(place - 1) % size"),
)  # fmt: skip
changed(
    "the other way round", "not to the next rank",
    ("group_peer=(place + 1)", "group_peer=(place + 9 - 10)"), ("group_peer=(place - 1)", "group_peer=(place + 1)"),
)  # fmt: skip
changed(
    "all the way round in forward",
    "a pass too many",
    ("        if step:\n            held", "        if True:\n            held"),
)
changed(
    "send, then receive", "everybody sends first",
    (EXCHANGE, "        dist.send(mine, group=group, group_dst=(place + 1) % size)\n"
               "        dist.recv(new, group=group, group_src=(place - 1) % size)\n"),
)  # fmt: skip
changed(
    "posted and read", "message not waited for",
    (EXCHANGE, EXCHANGE.replace("for work in dist.batch_isend_irecv([send, receive]):\n            work.wait()",
                                "dist.batch_isend_irecv([send, receive])")),
)  # fmt: skip
changed(
    "an outbox filled again before it has left", "buffer reused in flight",
    (EXCHANGE, """        outbox = outboxes.setdefault((mine.dtype, mine.shape), torch.empty_like(mine))
        outbox.copy_(mine)
        pending.append(dist.isend(outbox, group=group, group_dst=(place + 1) % size))
        dist.recv(new, group=group, group_src=(place - 1) % size)
"""),
    ("def passed_on(", "outboxes, pending = {}, []\n\n\ndef passed_on("),
    ("    return of_q, held", "    for work in pending:\n        work.wait()\n    return of_q, held"),
)  # fmt: skip
WRONG.wrong(
    "gathered", "calls the library",
    """
def everything(mine, dim, group):
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, mine.contiguous(), group=group)
    return torch.cat(parts, dim)


def ring_forward(q, k, v, places, group):
    later = everything(places, 0, group) > places[:, None]
    scores = (q @ everything(k, 2, group).mT / q.shape[-1] ** 0.5).masked_fill(later, float("-inf"))
    return scores.softmax(-1) @ everything(v, 2, group), scores.logsumexp(-1, keepdim=True)


def ring_backward(gradient, q, k, v, places, out, logsumexp, group):
    where, whole = everything(places, 0, group), [everything(each, 2, group) for each in (q, k, v, gradient)]
    with torch.enable_grad():
        leaves = [each.requires_grad_() for each in whole[:3]]
        out = functional.scaled_dot_product_attention(*leaves, attn_mask=where <= where[:, None])
        found = torch.autograd.grad(out, leaves, whole[3])
    return [each.chunk(dist.get_world_size(group), 2)[dist.get_rank(group)] for each in found]
""",
)  # fmt: skip
WRONG.wrong(
    "all keys at once", "too much memory",
    """
def ring_forward(q, k, v, places, group=None):
    size, place, blocks = dist.get_world_size(group), dist.get_rank(group), [[k, v, places]]
    for _ in range(size - 1):
        blocks.append(passed_on(blocks[-1], place, size, group))
    keys, values, where = (torch.cat(each, dim) for each, dim in zip(zip(*blocks), (2, 2, 0)))
    scores = (q @ keys.mT / q.shape[-1] ** 0.5).masked_fill(where > places[:, None], float("-inf"))
    return scores.softmax(-1) @ values, scores.logsumexp(-1, keepdim=True)
""",
)  # fmt: skip
changed("the output alone", "nothing returned", ("return mixed / total, largest + total.log()", "return mixed / total"))
changed("the gradient of q alone", "nothing returned", ("return of_q, held[3], held[4]", "return of_q"))
WRONG.right(
    "keys and values in one message, backward's last ones left out",
    """def shift(each, group):
    ranks = dist.get_process_group_ranks(group) if group else list(range(dist.get_world_size()))
    mine, received = ranks.index(dist.get_rank()), torch.empty_like(each)
    ends = [dist.P2POp(dist.irecv, received, ranks[mine - 1], group)]
    ends += [dist.P2POp(dist.isend, each.contiguous(), ranks[(mine + 1) % len(ranks)], group)]
    for work in dist.batch_isend_irecv(ends):
        work.wait()
    return received


def ring_forward(q, k, v, places, group=None):
    both, where, scale, outs, logs = torch.stack([k, v]), places, q.size(-1) ** -0.5, [], []
    for step in range(dist.get_world_size(group)):
        both, where = (shift(both, group), shift(where, group)) if step else (both, where)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, both[0]) * scale
        scores = torch.where(where <= places[:, None], scores, torch.finfo(q.dtype).min)
        log = scores.logsumexp(-1, keepdim=True)
        if not step:
            out, total = scores.softmax(-1) @ both[1], log
            continue
        grown = torch.logaddexp(total, log)
        out = out * (total - grown).exp() + (scores - grown).exp() @ both[1]
        total = grown
    return out, total


def ring_backward(gradient, q, k, v, places, out, logsumexp, group=None):
    both, of_both, of_q = torch.stack([k, v]), torch.zeros(2, *k.shape, dtype=k.dtype), torch.zeros_like(q)
    scale, where = q.size(-1) ** -0.5, places
    for left in reversed(range(dist.get_world_size(group))):
        scores = torch.einsum("bhqd,bhkd->bhqk", q, both[0]) * scale - logsumexp
        weights = torch.where(where[None, :] <= places[:, None], scores.exp(), 0.0)
        slopes = weights * torch.einsum("bhqd,bhkd->bhqk", gradient, both[1])
        slopes = (slopes - weights * (gradient * out).sum(-1)[..., None]) * scale
        of_q = of_q + slopes @ both[0]
        of_both = shift(of_both + torch.stack([slopes.mT @ q, weights.mT @ gradient]), group)
        if left:
            both, where = shift(both, group), shift(where, group)
    return [of_q, *of_both]
""",
)
changed("skips the ranks after it", "forward skips later ranks",
        (SKIPPED, "        if (place - step) % size > place:\n            continue\n"))  # fmt: skip
changed("causal in its own block", "forward causal in its own block",
        (FORWARD_MASK, f"if step == 0:\n            {FORWARD_MASK}"), (SKIPPED, ""))  # fmt: skip
changed("its own places, further on", "forward with keys in order",
        (SKIPPED, "        where = places + ((place - step) % size - place) * len(places)\n" + SKIPPED))  # fmt: skip
changed("divides gradients by K", "gradients scaled twice", ("- row) / root", "- row) / root / root"))
changed("passes nothing on where it skips", "a rank leaves the ring",
        ("        scores = q @ keys.transpose(-1, -2) / root\n",
         "        if where[0] > places[-1]:\n            continue\n        scores = q @ keys.mT / root\n"))  # fmt: skip
