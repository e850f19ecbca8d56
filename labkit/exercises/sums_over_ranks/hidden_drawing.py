"""What hidden cases of this lesson draw alike."""

from __future__ import annotations

import random


def not_divisible(draw: random.Random, world_size: int, low: int, high: int) -> int:
    return draw.choice([n for n in range(low, high) if n % world_size])
