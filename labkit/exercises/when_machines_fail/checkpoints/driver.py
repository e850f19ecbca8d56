"""What a rank runs of checkpoints: saves on a virtual disk, a load after each crash, and a save again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from labkit.checks.case import Value, Values
from labkit.checks.exercise import Functions
from labkit.checks.on_ranks.raised import raised
from labkit.checks.values import flag, integer, integers, listed
from labkit.exercises.when_machines_fail.crash_log import Files, packed
from labkit.exercises.when_machines_fail.crashed import folder_with, logs_of, num_said, saved
from labkit.exercises.when_machines_fail.moments import FOLDER, Moment, all_moments

STUB = 2
"""So many bytes are too few for torch.load to know its own format: it raises another error than for a longer piece."""


def drive(functions: Functions, inputs: Values) -> Values:
    """Save at each step, load from what a crash leaves at each moment, save the step that broke off, and load again.

    Inputs: steps, values (a tensor for each), cut (bytes that the last file keeps; -1 for all of it), restart (whether
    the last save is broken off and made again, too).
    """
    save, load = functions["save_checkpoint"], functions["load_checkpoint"]
    steps, values = integers(inputs, "steps"), listed(inputs, "values")

    def program() -> None:
        for number, (step, value) in list(enumerate(zip(steps, values, strict=True)))[num_said(1) :]:
            save(Path(FOLDER).resolve(), step, {"weight": value.clone(), "step": step})
            saved(number)

    cut, restart = integer(inputs, "cut"), flag(inputs, "restart")
    logs = logs_of(program, num_ranks=1, init=False, num_saves=len(steps), restart=restart)
    every = all_moments(logs, 1, len(steps), restart=restart) or []
    crashes: list[Value] = []
    stubs = files_left(every, len(steps), min(cut, STUB))
    for moment, files, stub in zip(every, files_left(every, len(steps), cut), stubs, strict=True):
        found: dict[str, Value] = {"files_again": 0, "files_later": 0}
        if is_cut(moment, len(steps), cut) and cut > STUB:
            with folder_with(stub) as folder:
                found["stub"] = _loaded(load, folder)
        with folder_with(files) as folder:
            found["loaded"] = _loaded(load, folder)
            if moment.is_between and moment.num_saved and not is_cut(moment, len(steps), cut):
                found["up_to_it"] = _loaded(load, folder, at_most=steps[moment.num_saved - 1])
                found["older"] = _loaded(load, folder, at_most=steps[moment.num_saved - 1] - 1)
            if moment.num_saved < len(steps):
                number = moment.num_saved
                found["again"] = _saved_again(save, load, folder, steps[number], values[number])
                found["files_again"] = len(list(folder.iterdir()))
        if moment.num_saved < len(steps) and not moment.is_between:
            with folder_with(files) as folder:
                _saved_again(save, load, folder, steps[moment.num_saved] + 1, values[moment.num_saved])
                found["files_later"] = len(list(folder.iterdir()))
        crashes.append(found)
    return {"crashes": crashes, "log": packed(logs)}


def files_left(every: Sequence[Moment], num_saves: int, cut: int) -> Iterator[Files]:
    """Yield the files of each moment; after the last save, what it wrote keeps `cut` bytes (-1: all of them)."""
    before: Files = {}
    for each in every:
        files = each.files
        if is_cut(each, num_saves, cut):
            files = {
                path: data if data is None or before.get(path) == data else data[:cut] for path, data in files.items()
            }
        if each.is_between and each.num_saved < num_saves:
            before = each.files
        yield files


def is_cut(moment: Moment, num_saves: int, cut: int) -> bool:
    """Return whether the newest checkpoint is cut short at this moment."""
    return moment.is_between and moment.num_saved == num_saves and cut >= 0


def _loaded(load: Any, folder: Path, **how: int) -> Value:
    try:
        came = load(folder, **how)
    except NotImplementedError:
        raise
    except Exception as error:
        return {"raised": raised(error)}
    if came is None:
        return {"step": None}
    try:
        step, state = came
        return {"step": step, "weight": state["weight"], "inside": state["step"]}
    except (TypeError, ValueError, KeyError):
        return {"raised": f"load_checkpoint returned {came!r:.80}"}


def _saved_again(save: Any, load: Any, folder: Path, step: int, value: Any) -> Value:
    real, os.fsync = os.fsync, lambda fd: None  # no power is cut here
    try:
        save(folder, step, {"weight": value.clone(), "step": step})
    except Exception as error:
        return {"raised": raised(error)}
    finally:
        os.fsync = real
    return _loaded(load, folder)
