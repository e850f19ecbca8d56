"""Workers that train apart: the replay is what they do one by one, every worker counts, momentum saves bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from labkit.exercises.when_machines_fail.few_exchanges.crews import CREWS
from labkit.failures import Kill
from labkit.failures.apart import MOST_STEPS, Crew, Data, Recipe, Worker, kilobytes, losses
from tests.checks.lesson_cells import namespace


def one_by_one(crew: Crew, recipe: Recipe, rounds: int, answers: dict[str, Any]) -> list[float]:
    """Return the losses after rounds of the lesson's own functions; who was killed comes back as a new process."""
    data = Data(crew.num_workers, 0)
    shared = torch.zeros(data.num_weights, dtype=torch.float64)
    momentum, found = torch.zeros_like(shared), [data.loss(shared)]
    workers: list[Worker | None] = [None] * crew.num_workers
    for number in range(rounds):
        begin, moves = number * recipe.steps, []
        for rank in range(crew.num_workers):
            if not crew.there(rank, begin, begin + recipe.steps):
                workers[rank] = None
                moves.append(None)
                continue
            worker = workers[rank] = workers[rank] or Worker(data, rank, shared, begin)
            moves.append(answers["inner_steps"](worker, shared, recipe.steps))
        shared, momentum = answers["outer_step"](shared, momentum, moves, recipe.rate, recipe.momentum)
        found.append(data.loss(shared))
    return found


def test_the_replay_of_all_workers_at_once_is_what_they_do_one_by_one() -> None:
    crew, recipe = Crew(3, (Kill(1, step=7),), 4, 0.0), Recipe(5, 0.7, 0.9)
    replayed = [loss for _, loss in losses(crew, recipe)][:6]
    assert one_by_one(crew, recipe, 5, namespace(number="16")) == pytest.approx(replayed, rel=1e-9)


def test_bytes_are_those_of_who_is_there_and_of_who_comes_back() -> None:
    crew, model = Crew(3, (Kill(1, step=7),), 4, 0.0), 4 * Data(3, 0).num_weights
    sent = [number // model for number, _ in losses(crew, Recipe(5, 0.7, 0.9))][:5]
    assert sent == [0, 6, 10, 17, 23]  # worker 1 misses a round, and gets the weights when it is back


@pytest.mark.parametrize("name", list(CREWS))
def test_who_drops_a_worker_never_arrives_and_momentum_saves_bytes(name: str) -> None:
    known = CREWS[name]
    dropped = replace(known.crew, failures=tuple(Kill(0, step=step) for step in range(1, MOST_STEPS, known.crew.away)))
    assert kilobytes(dropped, known.diloco, (0,)) is None
    averages, diloco, best = (kilobytes(known.crew, each, (0,)) for each in (known.averages, known.diloco, known.best))
    assert averages is not None and diloco is not None and best is not None
    assert best < diloco < 0.7 * averages
