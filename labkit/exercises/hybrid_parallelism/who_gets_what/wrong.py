"""Wrong answers to who_gets_what, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

REPLICAS = '    replicas = sizes["data"] * sizes["shard"]\n'
PLACE = 'place["data"] * sizes["shard"] + place["shard"]'
REFUSE = "    if batch % (replicas * microbatch):\n"
RUNS = "    return [list(range(at, at + microbatch)) for at in range(first, first + share, microbatch)]\n"
SEED = "seed * 2 * torch.Size(sizes.values()).numel() + number"
TURN = 'if is_cut or axis != "tensor"'

changed(
    "each rank its own", "each rank its own samples",
    (REPLICAS, '    replicas = sizes["data"] * sizes["shard"] * sizes["pipeline"] * sizes["tensor"]\n'),
    (f"({PLACE})", f'((({PLACE}) * sizes["pipeline"] + place["pipeline"]) * sizes["tensor"] + place["tensor"])'),
    (REFUSE, '    if batch % (sizes["data"] * sizes["shard"] * microbatch):\n'),
    (RUNS, RUNS.replace("at + microbatch", "min(at + microbatch, first + share)")),
)  # fmt: skip
changed(
    "data alone", "data alone",
    ("    share = batch // replicas\n", '    share = batch // sizes["data"]\n'), (PLACE, 'place["data"]'),
)  # fmt: skip
changed(
    "everything", "the batch on every replica", ("    share = batch // replicas\n", "    share = batch\n"), (PLACE, "0")
)
changed(
    "so many microbatches", "microbatch is a size",
    (RUNS, "    size = share // microbatch\n"
           "    return [list(range(at, at + size)) for at in range(first, first + share, size)]\n"),
)  # fmt: skip
changed(
    "deals samples out", "dealt out",
    (RUNS, "    mine = list(range(batch))[first // share :: replicas]\n"
           "    return [mine[at : at + microbatch] for at in range(0, share, microbatch)]\n"),
)  # fmt: skip
changed(
    "deals microbatches out", "microbatches dealt out",
    (RUNS, "    turns = range(first // share * microbatch, batch, replicas * microbatch)\n"
           "    return [list(range(at, at + microbatch)) for at in turns]\n"),
)  # fmt: skip
changed(
    "stripes microbatches", "striped microbatches",
    (RUNS, "    count = share // microbatch\n"
           "    return [list(range(first + m, first + share, count)) for m in range(count)]\n"),
)  # fmt: skip
changed("counts shards first", "shard before data", (PLACE, 'place["shard"] * sizes["data"] + place["data"]'))
changed("never refuses", "does not divide", (REFUSE, "    if batch % replicas:\n"))
changed("rounds down", "does not divide", (REFUSE, "    if (batch // microbatch) % replicas:\n"))
changed(
    "refuses tensor ranks", "a needless refusal",
    (REFUSE, '    if batch % (replicas * microbatch * sizes["tensor"] * sizes["pipeline"]):\n'),
)  # fmt: skip
changed("a mask for each rank", "tensor ranks drift apart", (TURN, "if True"))
changed("one mask for all pieces", "pieces drop alike", (TURN, 'if axis != "tensor"'))
changed("adds places up", "replicas drop alike", ("number * sizes[axis] +", "number +"))
changed(
    "strides of a hundred", "replicas drop alike",
    (SEED, 'seed + 1000 * place["data"] + 100 * place["pipeline"] + (10 + place["tensor"] if is_cut else 0)'),
)  # fmt: skip
changed("one seed for all", "replicas drop alike", (SEED, "seed + place['tensor'] * is_cut"))
changed("counts cut ranks as uncut ones", "cut as uncut", ("number = int(is_cut)", "number = 0"))
DIGITS = """    number = int(is_cut)
    for digit in (place["data"], place["shard"], place["pipeline"], place["tensor"] if is_cut else 0):
        number = 10 * number + digit
"""
STRIDES = """    number = int(is_cut)
    for axis in ("data", "shard", "pipeline", "tensor"):
        number = number * sizes[axis] + (place[axis] if is_cut or axis != "tensor" else 0)
"""
changed("a digit for each place", "replicas drop alike", (STRIDES, DIGITS), (SEED, "100000 * seed + number"))
changed("multiplies the seed", "a product with the seed", (SEED, "seed * (number + 1)"))
changed("a minus for cut layers", "cut as uncut", ("number = int(is_cut)", "number = 0"),
        (SEED, "(seed * torch.Size(sizes.values()).numel() + number) * (-1 if is_cut else 1)"))  # fmt: skip
changed("counts cut layers from 10000 in every run", "one seed for all runs",
        (SEED, "10000 + number if is_cut else 20000 + 1000 * seed + number"))  # fmt: skip
changed(
    "data times data ranks", "multiplied by its own axis", (PLACE, 'place["data"] * sizes["data"] + place["shard"]')
)
changed("ignores the run", "one seed for all runs", (SEED, "number"))
changed("returns a generator", "no seed", (SEED, "torch.Generator().manual_seed(seed)"))
WRONG.right(
    "chunks of a list, and a seed that is hashed",
    """def my_samples(batch, microbatch, sizes, place):
    replicas = sizes["data"] * sizes["shard"]
    share, left = divmod(batch, replicas)
    if left or share % microbatch:
        raise ValueError(f"{batch} samples for {replicas} replicas in microbatches of {microbatch}")
    replica = place["shard"] + sizes["shard"] * place["data"]
    mine = list(range(batch))[replica * share :][:share]
    return [mine[at : at + microbatch] for at in range(0, share, microbatch)]


def dropout_seed(seed, sizes, place, is_cut):
    import hashlib

    where = [place[axis] for axis in ("data", "shard", "pipeline")] + ([place["tensor"]] if is_cut else [])
    return int.from_bytes(hashlib.sha256(repr((seed, where, is_cut)).encode()).digest()[:6], "big")
""",
)
changed(
    "the share forgotten", "a sample twice", ("    first = (" + PLACE + ") * share\n", "    first = " + PLACE + "\n")
)
changed("a microbatch one short", "samples left out", ("range(at, at + microbatch)", "range(at, at + microbatch - 1)"))
changed(
    "shards counted twice", "samples beyond the batch",
    (PLACE, 'place["data"] * sizes["shard"] * sizes["shard"] + place["shard"]'),
)  # fmt: skip
changed("not in microbatches", "no microbatches", (RUNS, "    return list(range(first, first + share))\n"))
changed("ranges", "no microbatches", (RUNS, "    return range(first, first + share), microbatch\n"))
changed(
    "asserts that it divides", "another error than ValueError",
    (REFUSE, "    assert batch % (replicas * microbatch) == 0, (batch, microbatch)\n    if False:\n"),
)  # fmt: skip
changed(
    "a short last microbatch", "does not divide",
    (REFUSE, "    if batch % replicas:\n"),
    (RUNS, RUNS.replace("at + microbatch)) for", "min(at + microbatch, first + share))) for")),
)  # fmt: skip
changed(
    "stages draw alike",
    "replicas drop alike",
    ('("data", "shard", "pipeline", "tensor")', '("data", "shard", "tensor")'),
)
changed(
    "shards draw alike",
    "replicas drop alike",
    ('("data", "shard", "pipeline", "tensor")', '("data", "pipeline", "tensor")'),
)
WRONG.right(
    "consecutive seeds, so that another run's ranks may draw the same",
    """def my_samples(batch, microbatch, sizes, place):
    if batch % (sizes["data"] * sizes["shard"] * microbatch) != 0:
        raise ValueError("uneven")
    each = batch // sizes["data"] // sizes["shard"]
    start = each * (place["data"] * sizes["shard"] + place["shard"])
    return torch.arange(start, start + each).view(-1, microbatch).tolist()


def dropout_seed(seed, sizes, place, is_cut):
    shape = [sizes["data"], sizes["shard"], sizes["pipeline"], sizes["tensor"] + 1]
    last = place["tensor"] if is_cut else sizes["tensor"]
    number = 0
    for count, at in zip(shape, [place["data"], place["shard"], place["pipeline"], last]):
        number = number * count + at
    return seed + number
""",
)
