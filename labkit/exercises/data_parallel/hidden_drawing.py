"""What hidden cases of this lesson draw alike."""

from __future__ import annotations

import random

import torch

from labkit.checks import draws
from labkit.checks.hidden import seed
from labkit.exercises.data_parallel.moves import Arguments


def generator(draw: random.Random) -> torch.Generator:
    return draws.generator(seed(draw))


def arguments(draw: random.Random, devices: int) -> Arguments:
    sizes = sorted((draw.randint(1, 9) for _ in range(devices)), reverse=True)
    model = draw.randint(1000, 10**9)
    return sizes, draw.randint(1, 5000), draw.randint(1, 5000), model, draw.randint(500, model)
