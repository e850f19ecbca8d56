"""Gradients of a real model for the bucket explorer's default; ``python -m tests.widgets.measured_gradients`` measures.

It prints labkit/widgets/measured_hooks.py's numbers, and the time of DDP's search for unused parameters.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import labkit
from labkit.widgets.hook_errors import as_ranks, hook_errors, norms

WIDTH, DEPTH, CONTEXT = 384, 40, 16
RANKS, BATCH, STEPS = 4, 32, 20


class Letters(nn.Module):
    """Guesses the next letter of a text from the 16 before it; 40 residual layers of 384 x 384 between."""

    def __init__(self, num_letters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_letters, WIDTH // CONTEXT)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, num_letters)

    def forward(self, letters: Tensor) -> Tensor:
        """Return logits, shape (batch, letters), of contexts, shape (batch, 16)."""
        x = self.embedding(letters).flatten(1)
        for layer in self.layers:
            x = x + functional.gelu(layer(functional.layer_norm(x, (WIDTH,)))) / DEPTH**0.5
        return self.head(functional.layer_norm(x, (WIDTH,)))


def real_gradients(steps: int = STEPS) -> list[list[Tensor]]:
    """Return each rank's gradients of the 80 weights and biases between, after training on Python's own argparse.py."""
    torch.manual_seed(0)
    text = Path(argparse.__file__).read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    letters = torch.tensor([alphabet.index(letter) for letter in text])
    model = Letters(len(alphabet))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def gradients() -> list[Tensor]:
        at = torch.randint(len(letters) - CONTEXT - 1, (BATCH,))
        optimizer.zero_grad()
        contexts = letters[at[:, None] + torch.arange(CONTEXT)]
        functional.cross_entropy(model(contexts), letters[at + CONTEXT]).backward()
        return [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]

    inside = slice(1, 1 + 2 * DEPTH)
    for step in range(steps + 1):
        ranks = [gradients() for _ in range(RANKS)]
        if step == steps:
            return [each[inside] for each in ranks]
        for parameter, *parts in zip(model.parameters(), *ranks, strict=True):
            parameter.grad = torch.stack(parts).mean(0)
        optimizer.step()
    raise AssertionError


def _forward_times(repeats: int = 60) -> dict[bool, list[float]]:
    """Return the times of DDP's forward without and with the search, in turns, seconds."""
    plain = nn.Sequential(*(nn.Linear(8, 8) for _ in range(DEPTH)))
    wrap_it: Callable[..., Any] = nn.parallel.DistributedDataParallel
    models = {search: wrap_it(plain, find_unused_parameters=search) for search in (False, True)}
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repeats):
        for search, model in models.items():
            begin = time.perf_counter()
            loss = model(torch.ones(1, 8)).sum()
            times[search].append(time.perf_counter() - begin)
            loss.backward()
    return times


def _shown(name: str, values: tuple[float, ...]) -> str:
    lines = wrap(" ".join(f"{value:.3g}" for value in values), 100)
    return f"{name}\n" + "\n".join(f'    "{line} "' for line in lines)


if __name__ == "__main__":
    measured = as_ranks(real_gradients())
    print(_shown("norms", norms(measured)))
    for hook, lost in hook_errors(measured).items():
        print(_shown(hook, lost.errors))
    forward = labkit.run(_forward_times, on=labkit.local(1), echo=False).results[0]
    plain, searched = (statistics.median(forward[search][10:]) for search in (False, True))
    print(f"search, per parameter: {1e6 * (searched - plain) / (2 * DEPTH):.3g} us ({plain=}, {searched=})")
