"""Wrong answers to split_loader, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


LOADER = """
class SplitLoader:
    def __init__(self, dataset, batch_size, speeds, shuffle=True, seed=0):
        self.dataset, self.batch_size, self.speeds, self.shuffle, self.seed = dataset, batch_size, speeds, shuffle, seed
        self.epoch = 0

    def __len__(self):
        return -(-len(self.dataset) // self.batch_size)

    def __iter__(self):
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(f"{self.seed} {self.epoch}").shuffle(order)
        self.epoch += 1
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            first, pieces = 0, {}
            for device, share in enumerate(shares_by_speed(len(batch), self.speeds)):
                if share:
                    samples = [self.dataset[index] for index in batch[first : first + share]]
                    pieces[device] = tuple(torch.stack(column) for column in zip(*samples))
                first += share
            yield pieces
"""


def wrong_loader(name: str, mistake: str, *changes: tuple[str, str]) -> None:
    source = LOADER
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    wrong(name, mistake, source)


wrong_loader(
    "whole batches only",
    "the last batch dropped",
    ("range(0, len(order), self.batch_size)", "range(0, len(order) - self.batch_size + 1, self.batch_size)"),
)
wrong_loader(
    "an iterator made once",
    "it ends for ever",
    ("self.epoch = 0", "self.epoch = 0\n        self.batches = self.make()"),
    ("def __iter__(self):", "def __iter__(self):\n        return self.batches\n\n    def make(self):"),
)
wrong_loader(
    "round and round",
    "it does not end",
    (
        "for start in range(0, len(order), self.batch_size):",
        "for start in (s for _ in range(99) for s in range(0, len(order), self.batch_size)):",
    ),
)
wrong_loader("one order for all", "no new order", ('f"{self.seed} {self.epoch}"', "self.seed"))
wrong_loader(
    "the global generator", "not repeatable", ('random.Random(f"{self.seed} {self.epoch}").shuffle', "random.shuffle")
)
wrong_loader("never shuffled", "not shuffled", ("if self.shuffle:", "if False:"))
wrong_loader("shuffled whatever is said", "always shuffled", ("if self.shuffle:", "if True:"))
wrong_loader(
    "pieces without samples",
    "empty pieces",
    ("if share:", "if True:"),
    (
        "tuple(torch.stack(column) for column in zip(*samples))",
        "tuple(torch.stack(column) for column in zip(*samples)) if samples "
        "else (torch.empty(0, 2), torch.empty(0).long())",
    ),
)
wrong_loader(
    "equal pieces",
    "speeds ignored",
    ("shares_by_speed(len(batch), self.speeds)", "shares_by_speed(len(batch), [1] * len(self.speeds))"),
)
wrong_loader(
    "shares of a whole batch",
    "shares of a whole batch",
    ("shares_by_speed(len(batch), self.speeds)", "shares_by_speed(self.batch_size, self.speeds)"),
    ("samples = [self", "if not batch[first : first + share]: continue\n                    samples = [self"),
)
wrong_loader(
    "stack of nothing",
    "empty pieces",
    ("if share:", "if True:"),
    (
        "tuple(torch.stack(column) for column in zip(*samples))",
        "torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])",
    ),
)
wrong_loader("a pair of nothing", "empty pieces", ("if share:", "if True:"))
wrong_loader("every device from the start", "samples lost or doubled", ("first += share", "pass"))
