"""A small training in which every part has a state of its own: what a resume must bring back."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

NUM_SAMPLES, BATCH = 24, 6
OVERFLOWS_AT = 5
"""The step at which a gradient overflows, and the loss scale is halved."""


def decay(step: int) -> float:
    """Return by how much the learning rate has fallen at a step."""
    return float(0.8**step)


class Sampler:
    """Batches of a shuffled order, which is drawn anew for each epoch.

    Attributes:
        generator: Draws the orders.
        order: Of this epoch.
        position: How many samples of it were taken.
    """

    def __init__(self, seed: int) -> None:
        """Draw the first order."""
        self.generator = torch.Generator().manual_seed(seed)
        self.order, self.position = torch.randperm(NUM_SAMPLES, generator=self.generator), 0

    def next_batch(self) -> Tensor:
        """Return the numbers of the next batch's samples."""
        if self.position == NUM_SAMPLES:
            self.order, self.position = torch.randperm(NUM_SAMPLES, generator=self.generator), 0
        self.position += BATCH
        return self.order[self.position - BATCH : self.position]


class Training:
    """A model with dropout, AdamW, a schedule of the learning rate, a loss scale, a sampler, and noise on the inputs.

    Attributes:
        model: Its dropout draws from torch's random numbers.
        optimizer: AdamW.
        schedule: Of its learning rate.
        scaler: Of its loss.
        sampler: Of its batches.
        step: How many steps were done.
        seen: What each step of this process was like: samples, learning rate, loss scale, noise, loss, sum of
            the optimizer's first moments.
    """

    def __init__(self, seed: int) -> None:
        """Begin from a seed; noise comes from Python's random numbers."""
        torch.manual_seed(seed)
        random.seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1)).double()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, decay)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        self.sampler = Sampler(seed)
        self.step = 0
        self.seen: list[dict[str, Any]] = []
        self._data = torch.randn(NUM_SAMPLES, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def train_step(self) -> None:
        """Do one step."""
        samples = self.sampler.next_batch()
        noise, rate, scale = random.gauss(0.0, 0.1), self.optimizer.param_groups[0]["lr"], self.scaler.get_scale()
        data = self._data[samples]
        loss = functional.mse_loss(self.model(data[:, :4] + noise), data[:, 4:])
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.step == OVERFLOWS_AT:
            next(self.model.parameters()).grad[0, 0] = float("inf")  # type: ignore[index]
        self.scaler.step(self.optimizer)
        moment = sum(float(state["exp_avg"].sum()) for state in self.optimizer.state.values())
        self.scaler.update()
        self.schedule.step()
        self.step += 1
        self.seen.append(
            {"samples": samples.tolist(), "rate": rate, "scale": scale, "noise": noise, "loss": loss.item(),
             "moment": moment}
        )  # fmt: skip
