"""Hidden cases of loss_scaling."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.faster_steps.loss_scaling.exercise import scaling_case


def cases(draw: random.Random) -> list[Case]:
    def events(count: int) -> str:
        return "".join(draw.choice("....i-nIN") for _ in range(count))

    return [
        scaling_case("drawn events", seed(draw), "." + events(24), growth_interval=2),
        scaling_case(
            "good steps", seed(draw), "." * 13, scale=2.0 ** draw.randint(4, 20), growth_interval=draw.randint(2, 5)
        ),
        scaling_case(
            "a bad one in between, torch's optimizer",
            seed(draw),
            "...n...i..N....-....",
            growth_interval=4,
            torchs=True,
        ),
    ]
