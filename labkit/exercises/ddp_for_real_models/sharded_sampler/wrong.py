"""Wrong answers to sharded_sampler, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


SAMPLER = """
class ShardedSampler(Sampler):
    def __init__(self, size, world_size, rank, shuffle=True, seed=0, drop_last=False):
        self.size, self.world_size, self.rank = size, world_size, rank
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.size // self.world_size if self.drop_last else -(-self.size // self.world_size)

    def __iter__(self):
        order = list(range(self.size))
        if self.shuffle:
            order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.seed + self.epoch)).tolist()
        total = len(self) * self.world_size
        order = (order * -(-total // max(self.size, 1)))[:total]
        return iter(order[self.rank : total : self.world_size])
"""


sampler = WRONG.changing(SAMPLER)
sampler(
    "returns the list",
    "a list is no iterator",
    ("iter(order[self.rank : total : self.world_size])", "order[self.rank : total : self.world_size]"),
)
sampler(
    "epoch after epoch in one iterator",
    "it does not end",
    (
        "        return iter(order[self.rank : total : self.world_size])\n",
        "        while True:\n            yield from order[self.rank : total : self.world_size]\n",
    ),
)
sampler("set_epoch does nothing", "set_epoch forgotten", ("        self.epoch = epoch", "        pass"))
sampler(
    "seed with the rank",
    "each rank shuffles for itself",
    ("self.seed + self.epoch)", "self.seed + self.epoch + self.rank)"),
)
sampler(
    "blocks",
    "blocks instead of strides",
    ("order[self.rank : total : self.world_size]", "order[self.rank * len(self) : (self.rank + 1) * len(self)]"),
)
sampler(
    "no padding",
    "ranks get unequal numbers",
    ("        order = (order * -(-total // max(self.size, 1)))[:total]\n", "        order = order[:total]\n"),
)
sampler("epoch only", "seed ignored", ("manual_seed(self.seed + self.epoch)", "manual_seed(self.epoch)"))
sampler(
    "repeats once",
    "too few samples to repeat once",
    ("(order * -(-total // max(self.size, 1)))[:total]", "(order + order)[:total]"),
)
SEEDED = "generator=torch.Generator().manual_seed(self.seed + self.epoch)).tolist()"
RANDPERM = f"torch.randperm(self.size, {SEEDED}"

PADS = "        order = (order * -(-total // max(self.size, 1)))[:total]\n"
sampler(
    "shuffles with the global generator",
    "each rank shuffles for itself",
    (RANDPERM, "torch.randperm(self.size).tolist()"),
)
sampler(
    "shuffles with random",
    "another shuffle",
    (RANDPERM, "__import__('random').Random(self.seed + self.epoch).sample(order, self.size)"),
)
sampler(
    "pads with the last sample",
    "padded with other samples",
    (PADS, "        order = (order + order[-1:] * self.world_size)[:total]\n"),
)
sampler(
    "pads with zeros", "padded with other samples", (PADS, "        order = (order + [0] * self.world_size)[:total]\n")
)
sampler(
    "pads before it shuffles",
    "padded or cut before the shuffle",
    (PADS, ""),
    (
        "        order = list(range(self.size))\n",
        "        total = len(self) * self.world_size\n        order = [index % self.size for index in range(total)]\n",
    ),
    (
        RANDPERM,
        f"[order[i] for i in torch.randperm(total, {SEEDED}]",
    ),
)
sampler(
    "always one more",
    "padded even if it divides",
    ("-(-self.size // self.world_size)", "self.size // self.world_size + 1"),
)
sampler("drop_last ignored", "drop_last ignored", ("self.size // self.world_size if self.drop_last else -", "-"))
sampler(
    "drops before it shuffles",
    "padded or cut before the shuffle",
    (
        RANDPERM,
        f"torch.randperm(self.size - (self.size % self.world_size if self.drop_last else 0), {SEEDED}",
    ),
)
sampler("shuffles always", "shuffle ignored", ("        if self.shuffle:", "        if True:"))
sampler(
    "a new order each time",
    "a new order without set_epoch",
    ("        order = list(range(self.size))\n", "        order = list(range(self.size))\n        self.epoch += 1\n"),
    ("        self.epoch = epoch\n", "        self.epoch = epoch - 1\n"),
    ("        self.epoch = 0\n", "        self.epoch = -1\n"),
)
sampler(
    "the length of the whole",
    "len() says something else",
    (
        "    def __len__(self):\n        return",
        "    def __len__(self):\n        return self.size\n\n    def part(self):\n        return",
    ),
    ("len(self)", "self.part()"),
)
sampler("seed times epoch", "set_epoch forgotten", ("self.seed + self.epoch", "self.seed * (self.epoch + 1)"))
sampler(
    "epochs continue the generator",
    "another shuffle",
    ("        order = list(", "        g = torch.Generator().manual_seed(self.seed)\n        order = list("),
    (
        RANDPERM,
        "[torch.randperm(self.size, generator=g).tolist() for _ in range(self.epoch + 1)][-1]",
    ),
)
WRONG.changed(
    "torch.manual_seed",
    "the global generator",
    (
        (
            "            generator = torch.Generator().manual_seed(self.seed + self.epoch)\n"
            "            order = torch.randperm(self.size, generator=generator).tolist()"
        ),
        (
            "            torch.manual_seed(self.seed + self.epoch)\n"
            "            order = torch.randperm(self.size).tolist()"
        ),
    ),
)
WRONG.changed(
    "elements of a tensor",
    "tensors for indices",
    ("generator=generator).tolist()", "generator=generator)"),
    (
        "        order = (order * -(-total // max(self.size, 1)))[:total]\n",
        "        order = (list(order) * -(-total // max(self.size, 1)))[:total]\n",
    ),
)
WRONG.changed(
    "rounds to the nearest",
    "not rounded up",
    ("-(-self.size // self.world_size)\n", "(self.size + self.world_size // 2) // self.world_size\n"),
)
WRONG.changed("adds the epoch", "epochs add up", ("self.epoch = epoch", "self.epoch += epoch"))
WRONG.changed("moves the seed on", "epochs add up", ("self.epoch = epoch", "self.seed += epoch"))
WRONG.changed("rounds down always", "not rounded up", (" if self.drop_last else -(-self.size // self.world_size)", ""))
WRONG.changed(
    "shuffles its own part",
    "shuffled after it is dealt out",
    ("            order = torch.randperm(self.size, generator=generator).tolist()\n", ""),
    (
        "        return iter(order[self.rank : total : self.world_size])",
        "        mine = order[self.rank : total : self.world_size]\n"
        "        places = range(len(mine))\n"
        "        if self.shuffle:\n            places = torch.randperm(len(mine), generator=generator).tolist()\n"
        "        return iter([mine[place] for place in places])",
    ),
)
