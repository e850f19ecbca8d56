"""What a rank runs of together: saves of several virtual ranks, and loads from what a crash leaves at each moment."""

from __future__ import annotations

import os
import time
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.raised import line_in
from labkit.checks.values import flag, integer, integers, listed
from labkit.errors import RunError
from labkit.exercises.when_machines_fail.crash_log import packed
from labkit.exercises.when_machines_fail.crashed import logs_of, num_said, saved
from labkit.exercises.when_machines_fail.moments import FOLDER, Moment, all_moments

MOST = 10
"""So many moments within saves are tried in a case."""
NOTHING = -1
"""Stands for the step of a load that found nothing."""


def drive(functions: Functions, inputs: Values) -> Values:
    """Save at each step on all ranks; load on all from what each crash leaves, save what broke off, load again.

    Inputs: num_ranks, steps, late_s (seconds that each rank works before a save), restart
    (whether the last save is broken off and made again, too).
    """
    save, load = functions["save_together"], functions["load_together"]
    num_ranks, steps = integer(inputs, "num_ranks"), integers(inputs, "steps")
    late_s = listed(inputs, "late_s")

    def program() -> None:
        rank = dist.get_rank()
        for number, step in list(enumerate(steps))[num_said(num_ranks) :]:
            time.sleep(late_s[rank])
            save(Path(FOLDER).resolve(), step, part(step, rank))
            saved(number, rank)

    restart = flag(inputs, "restart")
    logs = logs_of(program, num_ranks=num_ranks, init=True, num_saves=len(steps), restart=restart)
    every = tried(all_moments(logs, num_ranks, len(steps), restart=restart) or [])
    crashes: list[Value] = []
    while len(crashes) < len(every):
        done, problem = _loads(save, load, num_ranks, steps, every[len(crashes) :])
        crashes += [{"loads": came, "problem": ""} for came in done]
        if problem:
            crashes.append({"loads": [], "problem": problem})
            break
    return {"crashes": crashes, "log": packed(logs)}


def tried(every: list[Moment]) -> list[Moment]:
    """Return the moments between saves, and some of the others, evenly spaced: each costs a restart of all ranks."""
    inside = [place for place, moment in enumerate(every) if not moment.is_between]
    kept = {inside[len(inside) * number // MOST] for number in range(MOST)} if len(inside) > MOST else set(inside)
    return [moment for place, moment in enumerate(every) if moment.is_between or place in kept]


def part(step: int, rank: int) -> dict[str, Any]:
    """Return what a rank saves at a step."""
    return {"weight": torch.tensor([step, rank, 7.5], dtype=torch.float64)}


def _loads(save: Any, load: Any, num_ranks: int, steps: list[int], every: list[Moment]) -> tuple[list[Value], str]:
    """Return what all ranks load from the files of each moment, until one fails, and how it failed."""
    from labkit.crashes.left import put
    from labkit.virtual_world import virtual
    from labkit.worlds import run

    with TemporaryDirectory(prefix="labkit-restart-") as name:
        base = Path(name)
        for number, moment in enumerate(every):
            put(moment.files, base / str(number))
        numbers = [moment.num_saved for moment in every]

        def restart() -> None:
            rank = dist.get_rank()
            for number, num_saved in enumerate(numbers):
                folder = base / str(number)
                found = _row(load(folder))
                dist.barrier()  # a training's first all-reduce: nobody saves before all have loaded
                if num_saved < len(steps):
                    save(folder, steps[num_saved], part(steps[num_saved], rank))
                    found += _row(load(folder))
                torch.save(found, base / f"{number}-{rank}")
                dist.barrier()

        problem, fsync = "", os.fsync
        os.fsync = lambda fd: None  # no power is cut here
        try:
            with chdir(base):  # what is saved to no folder must not lie in the learner's
                run(restart, on=virtual(num_ranks, cuda=False), echo=False, timeout=60.0)
        except RunError as error:
            where = line_in(error.reports.get(error.rank, "")) if error.rank is not None else ""
            problem = str(error).strip().splitlines()[0].removesuffix(".")[:300] + where
        finally:
            os.fsync = fsync
        done: list[Value] = []
        for number in range(len(every)):
            files = [base / f"{number}-{rank}" for rank in range(num_ranks)]
            if not all(file.exists() for file in files):
                break
            done.append([torch.load(file) for file in files])
    return done, problem


def _row(found: Any) -> list[Any]:
    """Return what a rank loaded: step, and the numbers of its state."""
    if found is None:
        return [NOTHING, None]
    step, state = found
    weight = state.get("weight") if isinstance(state, dict) else None
    return [step, weight.tolist() if isinstance(weight, torch.Tensor) else None]
