"""What a rank runs of few_exchanges."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.values import integer, listed, number
from labkit.failures.apart import Crew, Data, Recipe, Worker, fault_of
from labkit.failures.records import Kill


def drive(functions: Functions, inputs: Values) -> Values:
    """Let workers train apart by the learner's functions; return the shared weights after each round, and a recipe.

    And whether each worker's own optimizer took all its steps.

    Inputs: there (for each round, which workers stay to its end), seed, steps (of a round), rate, momentum; and of the
    crew that a recipe is asked for: num_workers, kills (rank and step of each), away, goal.
    """
    inner, outer = functions["inner_steps"], functions["outer_step"]
    steps, rate, momentum = integer(inputs, "steps"), number(inputs, "rate"), number(inputs, "momentum")
    shared, kept, workers = beginning(inputs)
    optimizers = [worker.optimizer for worker in workers]
    every: list[Value] = []
    for there in listed(inputs, "there"):
        moves = []
        for worker, stays in zip(workers, there, strict=True):
            moves.append(inner(worker, shared.clone(), steps) if stays else None)
        found = outer(shared.clone(), kept, moves, rate, momentum)
        if not (isinstance(found, tuple | list) and len(found) == 2 and isinstance(found[0], Tensor)):
            return {"shared": f"{found!r:.80}", "recipe": None, "same_optimizer": True}
        shared, kept = found[0].detach(), found[1]
        if shared.shape != workers[0].weights.shape:
            return {"shared": f"weights of shape {tuple(shared.shape)}", "recipe": None, "same_optimizer": True}
        every.append(shared.clone())
    recipe: Any = functions["plan_rounds"](crew_of(inputs))
    problem = fault_of(recipe)
    rounds = [sum(map(bool, of_one)) for of_one in zip(*listed(inputs, "there"), strict=True)]
    same = all(map(_took, optimizers, [steps * each for each in rounds]))
    return {"shared": every, "recipe": problem or asdict(recipe), "same_optimizer": same}


def _took(optimizer: torch.optim.Optimizer, num_steps: int) -> bool:
    """Return whether an optimizer of one parameter took so many steps."""
    return [int(each.get("step", 0)) for each in optimizer.state.values()] == [num_steps]


def beginning(inputs: Values) -> tuple[Tensor, Tensor, list[Worker]]:
    """Return the shared weights, the outer momentum and the workers of a case."""
    num_workers = len(listed(inputs, "there")[0])
    data = Data(num_workers, integer(inputs, "seed"))
    shared = torch.zeros(data.num_weights, dtype=torch.float64)
    return shared, torch.zeros_like(shared), [Worker(data, worker, shared) for worker in range(num_workers)]


def crew_of(inputs: Values) -> Crew:
    """Return the crew of a case."""
    kills = tuple(Kill(rank, step=step) for rank, step in listed(inputs, "kills"))
    return Crew(integer(inputs, "num_workers"), kills, integer(inputs, "away"), number(inputs, "goal"))


def recipe_of(data: Value) -> Recipe | None:
    """Return a recipe that came as data, None for what is none."""
    if not isinstance(data, dict) or set(data) != {"steps", "rate", "momentum"}:
        return None
    recipe = Recipe(**cast(dict[str, Any], data))
    return None if fault_of(recipe) else recipe
