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
