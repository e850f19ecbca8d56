"""Wrong answers to expert_parallel, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

NUMBER = "counts[:place].sum(0)[chosen] + asks"
UP_TO = "    up_to = functional.pad(counts.cumsum(0).clamp(max=capacity), (0, 0, 1, 0))\n"
TAKEN = "    taken = up_to.diff(dim=0).long().view(size, size, -1)"
ADDED = "    out[rows] += gate[rows, None] * back\n"
BALANCE = "num_experts * (counts.sum(0) * sums.sum(0)).sum() / counts.sum() ** 2"
EXCHANGES = "sent, received = taken[place].sum(-1).tolist(), taken[:, place].sum(-1).tolist()"
WHOSE = "torch.arange(len(experts)).repeat(size).repeat_interleave(taken[:, place].flatten())"


def local(capacity: str) -> tuple[tuple[str, str], ...]:
    """Return the changes that count each rank's tokens by themselves."""
    return (
        (NUMBER, "asks"), ("number < capacity", f"number < {capacity}"),
        (UP_TO, f"    up_to = functional.pad(counts.clamp(max={capacity}).cumsum(0), (0, 0, 1, 0))\n"),
    )  # fmt: skip


changed("each rank by itself", "capacity of each rank", *local("capacity"))
changed("an equal share for each rank", "capacity of each rank", *local("capacity // size"))
changed(
    "the last ones", "the later ones taken",
    ("rows = (number < capacity)", "rows = (counts.sum(0)[chosen] - number <= capacity)"),
    (UP_TO, "    after = counts.flip(0).cumsum(0).clamp(max=capacity)\n"
            "    after = functional.pad(after, (0, 0, 1, 0)).diff(dim=0).flip(0)\n"),
    (TAKEN, "    taken = after.long().view(size, size, -1)"),
)  # fmt: skip
changed(
    "up to capacity, with it", "one too many",
    ("number < capacity", "number <= capacity"), ("clamp(max=capacity)", "clamp(max=capacity + 1)"),
)  # fmt: skip
changed(
    "below the last place", "one too few",
    ("number < capacity", "number < capacity - 1"), ("clamp(max=capacity)", "clamp(max=capacity - 1)"),
)  # fmt: skip
changed("takes all", "nobody dropped", ("number < capacity", "number >= 0"), (".clamp(max=capacity)", ""))
changed("not weighed", "gate forgotten", ("gate[rows, None] * back", "back"))
changed(
    "weighed on the way", "gate before the expert",
    ("dist.all_to_all_single(inbox, x[rows],", "dist.all_to_all_single(inbox, gate[rows, None] * x[rows],"),
    ("gate[rows, None] * back", "back"),
)  # fmt: skip
changed(
    "weighed by what softmax got", "weighed by the logit",
    ("gate[rows, None] * back", "(x @ router).amax(-1)[rows, None] * back"),
)  # fmt: skip
changed(
    "lists of tokens", "a list of unequal tensors",
    ("dist.all_to_all_single(inbox, x[rows], received, sent, group=group)",
     "dist.all_to_all(list(inbox.split(received)), list(x[rows].split(sent)), group=group)"),
)  # fmt: skip
changed(
    "zeros for the rest", "dropped tokens are zero",
    ("out = x.clone()", "out = torch.zeros_like(x)"), (ADDED, "    out[rows] = x[rows] + gate[rows, None] * back\n"),
)  # fmt: skip
changed("nothing but results", "no residual", ("out = x.clone()", "out = torch.zeros_like(x)"))
changed("results in place of tokens", "no residual", ("out[rows] +=", "out[rows] ="))
changed("left sorted", "order lost", (ADDED, "    out[rows.sort().values] += gate[rows, None] * back\n"))
changed("left sorted, gates in order", "order lost", (ADDED, "    rows = rows.sort().values\n" + ADDED))
changed(
    "read by expert", "inbox misread",
    (WHOSE, "torch.arange(len(experts)).repeat_interleave(taken[:, place].sum(0))"),
)  # fmt: skip
changed(
    "tokens in their own order", "not sorted",
    ("    rows = rows[chosen[rows].argsort(stable=True)]", "    rows = rows"),
)  # fmt: skip
changed(
    "one here, one there", "dealt like cards",
    ("argsort(stable=True)]", "remainder(size).mul(num_experts).add(chosen[rows]).argsort(stable=True)]"),
    (TAKEN, "    taken = up_to.diff(dim=0).long().view(size, -1, size).transpose(1, 2)"),
)  # fmt: skip
changed(
    "its own balance",
    "balance of its own tokens",
    (BALANCE, "num_experts * (asks.double().mean(0) * chances.mean(0)).sum()"),
)
changed(
    "mean probability of its own tokens", "P of its own tokens",
    (BALANCE, "num_experts * (counts.sum(0) / counts.sum() * chances.mean(0)).sum()"),
)  # fmt: skip
changed(
    "mean of mean probabilities", "mean of means",
    (BALANCE, "num_experts * (counts.sum(0) / counts.sum() * (sums / counts.sum(1, True)).mean(0)).sum()"),
)  # fmt: skip
changed(
    "balance after capacity",
    "balance after dropping",
    (BALANCE, BALANCE.replace("(counts.sum(0) *", "(counts.sum(0).clamp(max=capacity) *")),
)
changed(
    "averages of ranks", "mean of means",
    (BALANCE, "num_experts * ((counts / counts.sum(1, True)).mean(0) * (sums / counts.sum(1, True)).mean(0)).sum()"),
)  # fmt: skip
changed("no factor", "not times E", ("num_experts * (counts", "(counts"))
changed(
    "balance of all ranks", "balance of the world",
    (BALANCE, "over_all(asks, chances)"),
    ("    out = x.clone()\n", "    out = x.clone()\n"),
    ("def expert_layer(", """def over_all(asks, chances):
    both = torch.stack([asks.sum(0).to(chances.dtype), chances.sum(0)])
    dist.all_reduce(both)
    return asks.shape[1] * (both[0] * both[1]).sum() / both[0].sum() ** 2


def expert_layer("""),
)  # fmt: skip
changed(
    "receives what it sends", "splits not exchanged",
    (EXCHANGES, "sent = received = taken[place].sum(-1).tolist()"),
)  # fmt: skip
changed(
    "sends back as it came", "splits not exchanged", ("(back, inbox, sent, received,", "(back, inbox, received, sent,")
)
WRONG.wrong(
    "everything to everybody", "tokens to everybody",
    """
def expert_layer(x, router, experts, capacity, group=None):
    place, size, each = dist.get_rank(group), dist.get_world_size(group), len(experts)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([len(x)]), group=group)
    most = max(int(length) for length in lengths)
    parts = [x.new_empty(most, x.shape[1]) for _ in range(size)]
    dist.all_gather(parts, functional.pad(x, (0, 0, 0, most - len(x))), group=group)
    everybody = torch.cat([part[: int(length)] for part, length in zip(parts, lengths)])
    chances = (everybody @ router).softmax(-1)
    gate, chosen = chances.max(-1)
    out = torch.zeros_like(everybody)
    for n, expert in enumerate(experts):
        rows = (chosen == place * each + n).nonzero().flatten()[:capacity]
        out[rows] = gate[rows, None] * expert(everybody[rows])
    dist.all_reduce(out, group=group)
    f = functional.one_hot(chosen, router.shape[1]).double().mean(0)
    first = sum(int(length) for length in lengths[:place])
    return x + out[first : first + len(x)], router.shape[1] * (f * chances.mean(0)).sum()
""",
)  # fmt: skip
changed(
    "capacity checked on return", "over capacity",
    ("rows = (number < capacity).nonzero().flatten()", "rows = (number >= 0).nonzero().flatten()"),
    (".clamp(max=capacity)", ""),
    (ADDED, "    out[rows] += gate[rows, None] * back * (number < capacity)[rows, None]\n"),
)  # fmt: skip
WRONG.wrong(
    "filled up to capacity", "more than the tokens",
    """
def expert_layer(x, router, experts, capacity, group=None):
    place, size, each = dist.get_rank(group), dist.get_world_size(group), len(experts)
    chances = (x @ router).softmax(-1)
    gate, chosen = chances.max(-1)
    asks = functional.one_hot(chosen, size * each)
    told = torch.cat([asks.sum(0).to(x.dtype), chances.sum(0)])
    parts = [torch.empty_like(told) for _ in range(size)]
    dist.all_gather(parts, told, group=group)
    counts, sums = torch.stack(parts).split(size * each, 1)
    number = counts[:place].sum(0).long()[chosen] + (asks.cumsum(0) * asks).sum(1) - 1
    rows = (number < capacity).nonzero().flatten()
    outbox = x.new_zeros(size * each, capacity, x.shape[1])
    outbox[chosen[rows], number[rows]] = x[rows]
    inbox, back = torch.empty_like(outbox), torch.empty_like(outbox)
    dist.all_to_all_single(inbox, outbox, group=group)
    slots = inbox.view(size, each, capacity, -1).sum(0)
    done = torch.stack([expert(slot) for expert, slot in zip(experts, slots)])
    dist.all_to_all_single(back, done.repeat(size, 1, 1), group=group)
    out = x.clone()
    out[rows] += gate[rows, None] * back[chosen[rows], number[rows]]
    f, mean = counts.sum(0) / counts.sum(), sums.sum(0) / counts.sum()
    return out, size * each * (f * mean).sum()
""",
)  # fmt: skip
changed("the output alone", "nothing returned", ("    return out, balance\n", "    return out\n"))
changed("as many tokens on each rank", "mean of means", (" / counts.sum() ** 2", " / (len(x) * size) ** 2"))
changed(
    "leaves where there are no tokens", "a rank stays away",
    ("    chances = (x @ router)", "    if not len(x):\n        return x, torch.zeros(())\n    chances = (x @ router)"),
)  # fmt: skip
changed(
    "probabilities of those that ask", "P of those that ask",
    ("told = torch.cat([asks.sum(0).to(x.dtype), chances.sum(0)])",
     "told = torch.cat([asks.sum(0).to(x.dtype), (chances * asks).sum(0)])"),
)  # fmt: skip
changed(
    "the balance on one rank", "balance on one rank",
    ("    return out, balance\n", "    return out, balance if place == 0 else torch.zeros(())\n"),
)  # fmt: skip
WRONG.right(
    "messages, and no call of an expert without tokens",
    """def exchange(rows_for, group):
    size, place = dist.get_world_size(group), dist.get_rank(group)
    counts = torch.tensor([len(rows) for rows in rows_for])
    told = torch.empty_like(counts)
    dist.all_to_all_single(told, counts, group=group)
    came = [rows_for[place].new_empty(int(n), rows_for[place].shape[1]) for n in told]
    came[place] = rows_for[place]
    ends = []
    for other in range(size):
        if other != place and len(came[other]):
            ends.append(dist.P2POp(dist.irecv, came[other], group=group, group_peer=other))
        if other != place and len(rows_for[other]):
            ends.append(dist.P2POp(dist.isend, rows_for[other].contiguous(), group=group, group_peer=other))
    for work in dist.batch_isend_irecv(ends) if ends else []:
        work.wait()
    return came


def expert_layer(x, router, experts, capacity, group=None):
    size, place, per = dist.get_world_size(group), dist.get_rank(group), len(experts)
    chances = torch.softmax(x @ router, dim=1)
    choice = chances.argmax(1)
    mine = torch.bincount(choice, minlength=per * size)
    counts = torch.zeros(size, per * size, dtype=torch.int64)
    counts[place] = mine
    dist.all_reduce(counts, group=group)
    total = chances.sum(0)
    dist.all_reduce(total, group=group)
    asked, of_rank = counts[:place].sum(0), [[] for _ in range(size)]
    for token, expert in enumerate(choice.tolist()):
        if asked[expert] < capacity:
            of_rank[expert // per].append(token)
        asked[expert] += 1
    numbered = torch.cat([x, choice[:, None].to(x.dtype) % per], 1)
    inbox = exchange([numbered[tokens] for tokens in of_rank], group)
    results = []
    for rows in inbox:
        made = torch.zeros_like(rows[:, :-1])
        for number, expert in enumerate(experts):
            here = rows[:, -1] == number
            if here.any():
                made[here] = expert(rows[here, :-1])
        results.append(made)
    out = x.clone()
    for tokens, made in zip(of_rank, exchange(results, group)):
        for token, row in zip(tokens, made):
            out[token] = x[token] + chances[token, choice[token]] * row
    n = counts.sum()
    return out, float(per * size * (counts.sum(0) / n * total / n).sum())
""",
)
changed(
    "the largest gates of each rank", "the largest gates taken",
    ("asks.cumsum(0).gather(1, chosen[:, None])[:, 0] - 1",
     "torch.empty_like(chosen).scatter(0, (order := gate.argsort(descending=True)), "
     "asks[order].cumsum(0).gather(1, chosen[order, None])[:, 0]) - 1"),
)  # fmt: skip
changed(
    "the last rank's tokens first", "the last rank first",
    ("counts[:place]", "counts[place + 1 :]"),
    (UP_TO, UP_TO.replace("counts.cumsum", "counts.flip(0).cumsum")),
    (TAKEN, TAKEN.replace(".diff(dim=0)", ".diff(dim=0).flip(0)")),
)  # fmt: skip
changed("shares of what is taken", "balance after dropping",
        (BALANCE, "num_experts * (counts.sum(0).clamp(max=capacity) * sums.sum(0)).sum() / counts.sum() / "
                  "counts.sum(0).clamp(max=capacity).sum()"))  # fmt: skip
changed("averages the ranks' losses", "mean of the ranks' losses",
        (BALANCE, "(num_experts * (counts * sums).sum(1) / counts.sum(1).clamp(min=1) ** 2).mean()"))  # fmt: skip
