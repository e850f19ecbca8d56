"""Wrong answers to flat_shards, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

MISSING = "    missing = -len(flat) % dist.get_world_size()\n"
SHARD = "return rows_of(tensor)[dist.get_rank()].clone()"
WHOLE = "flat, n, r = tensor.detach().reshape(-1), dist.get_world_size(), dist.get_rank()\n    "

changed(
    "rounds down",
    "not padded",
    (SHARD, WHOLE + "return flat[r * (len(flat) // n) :][: len(flat) // n].clone()"),
)
changed(
    "every n-th element",
    "every N-th element",
    (SHARD, WHOLE + "return nn.functional.pad(flat, (0, -len(flat) % n))[r::n].clone()"),
)
changed(
    "the last is shorter",
    "not padded",
    (SHARD, WHOLE + "size = -(-len(flat) // n)\n    return flat[r * size :][:size].clone()"),
)
changed(
    "finish does nothing",
    "not filled",
    ("        work.wait()\n        columns", "        work.wait()\n        return\n        columns"),
)
changed(
    "tensor by tensor",
    "put together wrongly",
    ("everyones.split(sizes, 1)", "everyones.view(-1).view(len(everyones), -1).flip(0).split(sizes, 1)"),
)
changed(
    "replaces the tensor",
    "other memory",
    (
        "tensor.data.copy_(column.reshape(-1)[: tensor.numel()].view(tensor.shape))",
        "tensor.data = column.reshape(-1)[: tensor.numel()].view(tensor.shape).clone()",
    ),
)
changed("adds up", "sum instead of mean", ("(mine / dist.get_world_size())", "mine"))
changed(
    "begins in finish",
    "begins in finish",
    ("    work = REDUCE_SCATTER(mine, rows.view(-1), async_op=True)\n", ""),
    ("        work.wait()\n        return list", "        REDUCE_SCATTER(mine, rows.view(-1))\n        return list"),
)
changed(
    "waits at once",
    "waits at once",
    ("    work = ALL_GATHER(everyones.view(-1), mine, async_op=True)\n", "    ALL_GATHER(everyones.view(-1), mine)\n"),
    ("        work.wait()\n        columns", "        columns"),
)
changed(
    "all-reduces",
    "all_reduce",
    (
        "    work = REDUCE_SCATTER(mine, rows.view(-1), async_op=True)\n",
        "    work = dist.all_reduce(rows, async_op=True)\n",
    ),
    ("(mine / dist.get_world_size())", "(rows[dist.get_rank()] / dist.get_world_size())"),
)
changed("a view", "shares memory", (SHARD, "return rows_of(tensor)[dist.get_rank()]"))
changed("zeros in front", "padded in front", ("(0, missing)", "(missing, 0)"))
changed("writes into a leaf", "autograd sees it", ("tensor.data.copy_(", "tensor.copy_("))
changed(
    "writes where autograd looks", "autograd sees it",
    ("            tensor.data.copy_(", "            with torch.no_grad():\n                tensor.copy_("),
)  # fmt: skip
changed("never waits", "never waits", ("        work.wait()\n        columns", "        columns"))
changed("divides twice", "divided twice", ("(mine / dist", "(mine / dist.get_world_size() / dist"))
changed(
    "gathers what the shards are", "wider than the tensors", ("tensors[0].new_empty(", "shards[0].detach().new_empty(")
)
changed(
    "one gather for each tensor", "one collective each",
    ("    sizes = [len(shard) for shard in shards]\n",
     "    if len(shards) > 1:\n"
     "        ends = [start_gather([shard], [tensor]) for shard, tensor in zip(shards, tensors)]\n"
     "        return lambda: [end() for end in ends]\n"
     "    sizes = [len(shard) for shard in shards]\n"),
)  # fmt: skip
changed(
    "the last one ends at the end", "not padded with zeros",
    (SHARD, WHOLE + "size = -(-len(flat) // n)\n    begin = max(0, min(r * size, len(flat) - size))\n    "
     "return torch.cat([flat, flat])[begin : begin + size].clone()"),
)  # fmt: skip
changed(
    "begins again at the first", "not padded with zeros",
    (SHARD, WHOLE + "size = -(-len(flat) // n)\n    places = torch.arange(r * size, (r + 1) * size) % len(flat)\n    "
     "return flat[places]"),
)  # fmt: skip
changed(
    "pads the tensors it will fill", "touched too early",
    ("    everyones = tensors[0].new_empty(dist.get_world_size(), sum(sizes))\n",
     "    everyones = torch.cat([rows_of(tensor) for tensor in tensors], 1)\n"),
)  # fmt: skip
changed(
    "writes its own part at once", "touched too early",
    ("    work = ALL_GATHER(", "    for shard, tensor in zip(shards, tensors):\n"
     "        mine_there = tensor.data.view(-1)[dist.get_rank() * len(shard) :][: len(shard)]\n"
     "        mine_there.copy_(shard.detach()[: len(mine_there)])\n    work = ALL_GATHER("),
)  # fmt: skip
changed(
    "one scatter for each tensor", "one collective each",
    ("    rows = torch.cat([rows_of(tensor) for",
     "    if len(tensors) > 1:\n"
     "        ends = [start_scatter([tensor]) for tensor in tensors]\n"
     "        return lambda: [end()[0] for end in ends]\n"
     "    rows = torch.cat([rows_of(tensor) for"),
)  # fmt: skip
changed(
    "shards of the list, not of each tensor", "the list cut, not each tensor",
    ("    rows = torch.cat([rows_of(tensor) for tensor in tensors], 1)\n",
     "    rows = rows_of(torch.cat([rows_of(tensor).view(-1) for tensor in tensors]))\n"),
)  # fmt: skip
WRONG.right(
    "a list of buffers, slices instead of rows",
    """def shard_of(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    flat = tensor.detach().flatten()
    length = (flat.numel() + size - 1) // size
    mine = torch.zeros(length, dtype=flat.dtype)
    piece = flat[rank * length : (rank + 1) * length]
    mine[: piece.numel()] = piece
    return mine


def start_gather(shards, tensors):
    mine = torch.cat([each.detach() for each in shards]).to(tensors[0].dtype)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    work = dist.all_gather(parts, mine, async_op=True)

    def finish():
        work.wait()
        at = 0
        for shard, tensor in zip(shards, tensors):
            whole = torch.cat([part[at : at + len(shard)] for part in parts])
            tensor.data.view(-1).copy_(whole[: tensor.numel()])
            at += len(shard)

    return finish


def start_scatter(tensors):
    size = dist.get_world_size()
    tables = []
    for tensor in tensors:
        length = -(-tensor.numel() // size)
        table = torch.zeros(size * length, dtype=tensor.dtype)
        table[: tensor.numel()] = tensor.detach().flatten() / size
        tables.append(table.view(size, length))
    out = [torch.cat([table[rank] for table in tables]) for rank in range(size)]
    mine = torch.empty_like(out[0])
    work = dist.reduce_scatter(mine, out, async_op=True)

    def finish():
        work.wait()
        return [each.clone() for each in mine.split([table.shape[1] for table in tables])]

    return finish
""",
)
CONCATENATED = (
    "    rows = torch.cat([rows_of(tensor) for tensor in tensors], 1)\n",
    "    rows = rows_of(torch.cat([tensor.detach().reshape(-1) for tensor in tensors]))\n",
)
changed("pads the list", "the list cut, not each tensor", CONCATENATED)
SIZES = "    sizes = [-(-tensor.numel() // len(rows)) for tensor in tensors]\n"
changed(
    "pads the list, the last takes the rest",
    "the list cut, not each tensor",
    CONCATENATED,
    (
        SIZES,
        "    sizes = [tensor.numel() // len(rows) for tensor in tensors]\n"
        "    sizes[-1] = rows.shape[1] - sum(sizes[:-1])\n",
    ),
)
changed(
    "always one more",
    "one element too many",
    (MISSING, "    n = dist.get_world_size()\n    missing = (len(flat) // n + 1) * n - len(flat)\n"),
    (SIZES, SIZES.replace("-(-tensor.numel() // len(rows))", "tensor.numel() // len(rows) + 1")),
)
changed(
    "the means end where tensors end",
    "padding cut off",
    (
        "        return list((mine / dist.get_world_size()).split(sizes))",
        "        means, r = (mine / dist.get_world_size()).split(sizes), dist.get_rank()\n"
        "        return [m[: max(0, min(len(m), t.numel() - r * len(m)))] for m, t in zip(means, tensors)]",
    ),
)
changed(
    "view needs one stride", "view of another layout", ("flat = tensor.detach().reshape(-1)", "flat = tensor.view(-1)")
)
changed(
    "gathers shards that are not cast",
    "not cast before the gather",
    ("    mine = everyones[dist.get_rank()]  # sent from where it will stand\n", ""),
    (
        "torch.cat([shard.detach().to(mine.dtype) for shard in shards], out=mine)",
        "mine = torch.cat([shard.detach() for shard in shards])",
    ),
)
