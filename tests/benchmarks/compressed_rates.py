"""Learning rates of lesson 10's GPT under compression: python -m tests.benchmarks.compressed_rates prints the table.

The lesson trains every row at the rate that suits the GPT without compression. Whether another would rescue top 1 %
where the optimizer has a memory is what this asks. Mean loss of the last 10 of 200 steps, at so many times the rate:

    top 1 %        1      1/2    1/4    1/10
    momentum       1.55   1.58   1.55   1.56
    adamw          1.55   1.53   1.55
"""

from __future__ import annotations

import sys
from functools import partial

import torch

from labkit import models
from tests.benchmarks.compression import solution

RATES = (1.0, 0.5, 0.25, 0.1)


def main() -> None:
    """Print the loss for each optimizer and rate."""
    torch.set_num_threads(1)
    names = solution()
    top = partial(names["TopK"], 0.01)
    for optimizer in ("momentum", "adamw"):
        ends = []
        for rate in RATES:
            losses = models.train_as_ranks(lambda: names["ErrorFeedback"](top()), optimizer, 200, rate=rate)
            ends.append(sum(losses[-10:]) / 10)
        sys.stdout.write(f"{optimizer:14}" + "".join(f"{end:7.2f}" for end in ends) + "\n")


if __name__ == "__main__":
    main()
