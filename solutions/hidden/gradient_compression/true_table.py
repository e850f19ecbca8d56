"""Hidden cases of true_table."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.gradient_compression.true_table.exercise import Measured, Promise, claims_case


def cases(draw: random.Random) -> list[Case]:
    claims = ["faster", "smaller", "cheaper", "never tried"]
    promised: list[Promise] = [(claim, 0.25 * draw.randint(0, 3), 0.25 * draw.randint(4, 8)) for claim in claims]
    rows: list[Measured] = [
        (draw.choice(claims[:3]), f"place {number}", 0.25 * draw.randint(-2, 10)) for number in range(30)
    ]
    rows += [(claim, f"end {end}", value) for claim, *ends in promised[:3] for end, value in enumerate(ends)]
    steps = [(draw.uniform(0.1, 5), draw.uniform(0.1, 5)) for _ in range(6)]
    products = [(draw.uniform(0, 1), draw.uniform(0.5, 16)) for _ in range(6)]
    return [claims_case("drawn rows", steps, products, rows, promised)]
