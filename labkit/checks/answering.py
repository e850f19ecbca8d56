"""``labkit.answer`` and ``labkit.recorded``: finding the cause in a recorded run, saying why a number is as it is."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from labkit.board.reporting import report
from labkit.checks.answer_cell import read_answer
from labkit.checks.question import (
    KEY,
    OWN,
    QUESTION,
    RECORDING,
    RECORDINGS,
    Key,
    Literal,
    Question,
    misuse,
    read_key,
    read_question,
)
from labkit.checks.rooms import LABKIT
from labkit.errors import ConfigError
from labkit.timeline import Timeline

_missed: set[str] = set()
"""Each ``why`` that was answered wrongly in this process: the next answer is told the reason."""
TRY_AGAIN = "Try again: after the next answer you read the reason."


@dataclass(frozen=True)
class Answered:
    """What an answer is worth, as the notebook shows it.

    Attributes:
        exercise_id: "who_waits".
        text: What is told.
        passed: Whether all of it is right; None where nobody here knows.
    """

    exercise_id: str
    text: str = field(compare=False)
    passed: bool | None = None

    def __repr__(self) -> str:
        return self.text


def answer(exercise_id: str, single: Literal = None, /, **fields: Literal) -> Answered:
    """Return what your answer is worth; it never raises for a wrong one.

    A right answer is told the reason. A wrong one gets a hint; a second wrong one to a ``why`` is told the reason, too.

    In a class with recordings of its own, the answer is saved, and counts when you hand in.

    Args:
        exercise_id: Its slug, "who_waits".
        single: Your answer, where one thing is asked: a number or a word; None is no answer yet.
        **fields: Your answers by name, where several are: ``rank=3``.
    """
    try:
        folder = _folder(exercise_id)
        question = read_question(folder / QUESTION)
    except ConfigError as error:
        return Answered(str(exercise_id), f"{error}.")
    given = fields if "" not in question.fields else {"": single, **fields}
    if problem := misuse(question, given):
        return Answered(exercise_id, problem)
    if all(value is None for value in given.values()):
        return Answered(exercise_id, _asked(question))
    if Path(RECORDINGS, *folder.parts[-2:], RECORDING).is_file():
        return Answered(exercise_id, _handed_in(exercise_id, "The run is yours alone", given))
    if not (path := _own(folder / KEY)).is_file():
        return Answered(exercise_id, _handed_in(exercise_id, "Your class has the key", given))
    key = read_key(path)
    right = [name for name in question.fields if key.is_right(name, given[name])]
    passed = len(right) == len(question.fields)
    note = report(exercise_id, passed)
    told = _said(question, key, given, right, again=exercise_id in _missed)
    if not passed:
        _missed.add(exercise_id)
    return Answered(exercise_id, "\n".join(filter(None, [told, note])), passed)


def recorded(exercise_id: str) -> Timeline:
    """Return the recorded run that an exercise is about: the timeline of a run that went wrong, or slowly.

    Args:
        exercise_id: Its slug, "who_waits".

    Raises:
        ConfigError: If it has none.
    """
    path = _own(_folder(exercise_id) / RECORDING)
    if not path.is_file():
        raise ConfigError(f"exercise {exercise_id!r} has no recorded run")
    timeline = Timeline.load(path)
    timeline.is_asked_about = True
    return timeline


def _handed_in(exercise_id: str, why: str, given: Mapping[str, Literal]) -> str:
    """Return what is told of an answer that is judged later, from the text of its cell."""
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
        cell = str((shell.user_ns.get("In") or [""])[-1])
        read = read_answer(cell, exercise_id)
        if "answer" in cell and (read is None or dict(read.fields) != dict(given)):
            values = ", ".join(f"{name}={value!r}" if name else repr(value) for name, value in given.items())
            call = f'labkit.answer("{exercise_id}", {values})'
            return f"{why}, and what counts is what the cell says. Write the values themselves: {call}"
    return f"Your answer is written down. {why}; it counts when you hand in."


def _said(question: Question, key: Key, given: Mapping[str, Literal], right: list[str], *, again: bool) -> str:
    if len(right) == len(question.fields):
        return f"Right. {key.reason}"
    if question.kind == "why" and not again:
        return " ".join(filter(None, ["No.", key.hint(given), TRY_AGAIN]))
    if question.kind == "why":
        return " ".join(filter(None, [f"No, it is {key.answers['']!r}.", key.hint(given), key.reason]))
    verdicts = [
        f"{name}={given[name]!r}: {'right' if name in right else 'no answer yet' if given[name] is None else 'no'}"
        for name in question.fields
    ]
    hint = key.hint(given)
    return f"Not yet. {'; '.join(verdicts)}." + (f"\nhint: {hint}" if hint else "")


def _asked(question: Question) -> str:
    lines = [f"  {name}: {each.asks}; {each.takes()}" for name, each in question.fields.items() if name]
    lines += [f"  Put {each.takes()} in place of None." for name, each in question.fields.items() if not name]
    return "\n".join([question.asks, *lines])


def _own(path: Path) -> Path:
    """Return a student's own file, beside the notebook, or a class's own in place of labkit's.

    A class's own goes first where this process looks at a class's recordings.
    """
    folders = [os.environ[OWN]] if os.environ.get(OWN) else []
    owned = [Path(folder, *path.parts[-3:]) for folder in (*folders, RECORDINGS)]
    return next((each for each in owned if each.is_file()), path)


def _folder(exercise_id: object) -> Path:
    """Return the folder that holds a question.

    Raises:
        ConfigError: If there is none of this name; the message names what comes near.
    """
    places = map(Path, import_module(LABKIT).__path__)
    found = {path.parent.name: path.parent for place in places for path in place.glob(f"*/*/{QUESTION}")}
    if exercise_id in found:
        return found[str(exercise_id)]
    near = difflib.get_close_matches(str(exercise_id), found, n=1)
    raise ConfigError(f"there is no question {exercise_id!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
