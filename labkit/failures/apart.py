"""Workers that train apart, and exchange only at the end of a round: which rounds need the fewest bytes.

Each worker has data that nobody else has, and takes AdamW steps of its own from the shared weights. At the end of a
round the shared weights move along the average of the workers' moves: SGD with Nesterov's momentum. Workers are killed,
and come back. The model tells classes apart: a linear layer and cross entropy. Each worker has classes for itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from labkit.failures.records import Kill

Array: TypeAlias = Any
"""An array of numpy."""
FEATURES, CLASSES_EACH, BATCH, NOISE = 16, 3, 16, 0.7
INNER_RATE, BETAS, DECAY = 0.008, (0.9, 0.99), 0.01
"""Of the workers' AdamW."""
MOST_STEPS = 400
"""There is time for so many steps, however they are divided into rounds."""


@dataclass(frozen=True)
class Crew:
    """Workers that are killed and come back, all equally fast.

    Attributes:
        num_workers: How many.
        failures: Who is killed, and at which step, counted from 1 over the whole run.
        away: Steps until a killed worker is back, as a new process.
        goal: The loss on everybody's data that is to be reached.
    """

    num_workers: int
    failures: tuple[Kill, ...]
    away: int
    goal: float

    def there(self, worker: int, begin: int, end: int) -> bool:
        """Return whether a worker takes all the steps from the one after `begin` to `end`."""
        return not any(
            one.rank == worker and one.step is not None and one.step <= end and one.step + self.away > begin + 1
            for one in self.failures
        )


@dataclass(frozen=True)
class Recipe:
    """How often workers exchange, and what they do then.

    Attributes:
        steps: Steps of a round.
        rate: Of the outer SGD, at most 1: with momentum 0, no further than the workers moved.
        momentum: Of the outer SGD, Nesterov's.
    """

    steps: int
    rate: float = 1.0
    momentum: float = 0.0


class Worker:
    """A worker: weights, an optimizer with what it keeps, and data of its own.

    Attributes:
        weights: All of the model's, flat; a worker that comes back has those of its own beginning.
        optimizer: AdamW on them.
    """

    def __init__(self, data: Data, number: int, weights: Tensor, step: int = 0) -> None:
        """Begin with these weights, and with the batch of this step."""
        self._data, self._number, self._step = data, number, step
        self.weights = nn.Parameter(weights.clone())
        self.optimizer = torch.optim.AdamW([self.weights], lr=INNER_RATE, betas=BETAS, weight_decay=DECAY)

    def loss(self) -> Tensor:
        """Return the loss on the next batch of its data."""
        inputs = torch.from_numpy(self._data.inputs[self._step, self._number])
        classes = torch.from_numpy(self._data.classes[self._step, self._number])
        self._step += 1
        return functional.cross_entropy(inputs @ self.weights.view(-1, FEATURES + 1).T, classes)


class Data:
    """What workers see: inputs, the last of which is always 1, and their classes.

    Attributes:
        inputs: Shape (steps, workers, BATCH, FEATURES + 1).
        classes: Shape (steps, workers, BATCH).
    """

    def __init__(self, num_workers: int, seed: int) -> None:
        """Draw all of it."""
        draw = np.random.default_rng(seed)
        self._num_classes = num_workers * CLASSES_EACH
        middles = np.random.default_rng(0).normal(size=(self._num_classes, FEATURES))  # the same whatever the seed

        def drawn(*shape: int) -> tuple[Array, Array]:
            own = draw.integers(CLASSES_EACH, size=(*shape[:-1], num_workers, shape[-1]))
            classes = own + CLASSES_EACH * np.arange(num_workers)[:, None]
            inputs = middles[classes] + NOISE * draw.normal(size=(*classes.shape, FEATURES))
            return np.concatenate([inputs, np.ones((*classes.shape, 1))], -1), classes

        self._all = drawn(128)
        self.inputs, self.classes = drawn(MOST_STEPS, BATCH)

    @property
    def num_weights(self) -> int:
        """Elements of the model."""
        return self._num_classes * (FEATURES + 1)

    def loss(self, weights: Tensor | Array) -> float:
        """Return the loss on data of all workers."""
        inputs, classes = (each.reshape(-1, *each.shape[2:]) for each in self._all)
        logits = inputs @ np.asarray(weights).reshape(-1, FEATURES + 1).T
        return float((np.logaddexp.reduce(logits, 1) - np.take_along_axis(logits, classes[:, None], 1)[:, 0]).mean())

    def gradients(self, weights: Array, workers: list[int], step: int) -> Array:
        """Return the gradient of each worker's loss at a step, at weights of its own, shape (workers, weights)."""
        inputs = self.inputs[step, workers]
        logits = inputs @ weights.reshape(len(workers), -1, FEATURES + 1).transpose(0, 2, 1)
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        shares -= np.arange(self._num_classes) == self.classes[step, workers][..., None]
        return (shares.transpose(0, 2, 1) @ inputs).reshape(len(workers), -1) / BATCH


@lru_cache(maxsize=32)
def _data(num_workers: int, seed: int) -> Data:
    return Data(num_workers, seed)


def fault_of(recipe: Any) -> str:
    """Return why this is no recipe, "" where it is one."""
    if not isinstance(recipe, Recipe):
        return f"{recipe!r:.60} is no Recipe(steps, rate, momentum)"
    if type(recipe.steps) is not int or not 1 <= recipe.steps <= MOST_STEPS:
        return f"steps={recipe.steps!r:.40} is no whole number from 1 to {MOST_STEPS}"
    for name, value in (("rate", recipe.rate), ("momentum", recipe.momentum)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            return f"{name}={value!r:.40} is no number from 0 to 1"
    return "" if recipe.momentum < 1 else f"momentum={recipe.momentum!r} adds up for ever; use less than 1"


def losses(crew: Crew, recipe: Recipe, seed: int = 0) -> list[tuple[int, float]]:
    """Return the bytes sent so far and the loss on everybody's data: first, and after each round until the goal.

    At the end of a round each worker that took all its steps sends the weights and gets them. Who comes back gets them
    at the beginning of the next round. Steps that make no whole round any more are left out.
    """
    data = _data(crew.num_workers, seed)
    shared, momentum = np.zeros(data.num_weights), np.zeros(data.num_weights)
    model_bytes = 4 * data.num_weights
    kept: dict[int, tuple[Array, Array, int]] = {}
    found, sent, now, before = [(0, data.loss(shared))], 0, 0, set(range(crew.num_workers))
    while now + recipe.steps <= MOST_STEPS and crew.goal < found[-1][1] < 1e3:
        end = now + recipe.steps
        there = [worker for worker in range(crew.num_workers) if crew.there(worker, now, end)]
        kept = {worker: each for worker, each in kept.items() if worker in there}
        sent += model_bytes * len(set(there) - before)
        if there:
            average = _inner(shared, there, kept, data, range(now, end)).mean(0) - shared
            momentum = recipe.momentum * momentum + average
            shared = shared + recipe.rate * (average + recipe.momentum * momentum)
            sent += 2 * model_bytes * len(there)
        now, before = end, set(there)
        found.append((sent, data.loss(shared)))
    return found


def kilobytes(crew: Crew, recipe: Recipe, seeds: Sequence[int] = (0, 1)) -> float | None:
    """Return what is sent until the goal is reached, on average over seeds; None where it is not reached in time.

    Between two rounds the loss is taken to fall evenly with the bytes.
    """
    sent = []
    for seed in seeds:
        (before, above), (after, below) = ([(0, math.inf), *losses(crew, recipe, seed)])[-2:]
        if not below <= crew.goal:
            return None
        sent.append(before + (after - before) * (above - crew.goal) / max(above - below, 1e-12))
    return sum(sent) / len(sent) / 1e3


def _inner(
    shared: Array, there: list[int], kept: dict[int, tuple[Array, Array, int]], data: Data, steps: range
) -> Array:
    """Return the weights of each worker after its own AdamW steps, shape (workers, weights), all workers at once."""
    weights, nothing = np.tile(shared, (len(there), 1)), (np.zeros_like(shared), np.zeros_like(shared), 0)
    before = [kept.get(worker, nothing) for worker in there]
    first, second = np.stack([each[0] for each in before]), np.stack([each[1] for each in before])
    count = np.array([[float(each[2])] for each in before])
    for step in steps:
        gradient, count = data.gradients(weights, there, step), count + 1
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient**2
        scaled = (first / (1 - BETAS[0] ** count)) / (np.sqrt(second / (1 - BETAS[1] ** count)) + 1e-8)
        weights = weights - INNER_RATE * (scaled + DECAY * weights)
    for place, worker in enumerate(there):
        kept[worker] = first[place], second[place], int(count[place, 0])
    return weights
