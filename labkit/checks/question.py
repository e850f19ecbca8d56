"""A question about a recorded run or a result: what it asks, and its key. Both are data.

labkit/exercises/LESSON/SLUG/question.json    what is asked; every copy of labkit has it
labkit/exercises/LESSON/SLUG/key.json         right answers and reasons, for who learns alone
labkit/exercises/LESSON/SLUG/recording.json   of a ``find``: the run to look at, a timeline
solutions/hidden/LESSON/SLUG/                 a class's own key.json and recording.json; the release hands out the
                                              recording and no key
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from labkit.errors import ConfigError
from labkit.words import join, plainly

Literal: TypeAlias = int | float | str | bool | None
"""What may be answered; None is no answer yet."""

_LARGEST = 1e300
QUESTION, KEY, RECORDING = "question.json", "key.json", "recording.json"
RECORDINGS = "recordings"
"""The folder beside a notebook in which a student's own recordings lie, LESSON/SLUG/, where each has another run."""
OWN = "LABKIT_OWN_RECORDINGS"
"""Environment variable: the folder of a class's own keys and recordings, LESSON/SLUG/, which go before labkit's."""


@dataclass(frozen=True)
class Field:
    """One thing that is asked.

    Attributes:
        asks: In words, "the rank that is late".
        choices: What may be answered; empty for a number.
        unit: Of a number, or "".
    """

    asks: str
    choices: tuple[str, ...] = ()
    unit: str = ""

    def takes(self) -> str:
        """Return what may be answered, in words."""
        if self.choices:
            return " or ".join(f'"{each}"' for each in self.choices)
        return f"a number, in {self.unit}" if self.unit else "a number"


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        kind: "find" or "why".
        asks: In words.
        fields: By the name of the argument of ``labkit.answer``; a single one without a name is under "".
    """

    kind: str
    asks: str
    fields: Mapping[str, Field]


@dataclass(frozen=True)
class Key:
    """What is right.

    Attributes:
        answers: Of each field.
        reason: Why, in words.
        within: Of a number: by how much it may be off, as a share of it.
        hints: Answers that somebody might give, and what to tell them.
    """

    answers: Mapping[str, Literal]
    reason: str
    within: Mapping[str, float]
    hints: tuple[tuple[Mapping[str, Literal], str], ...]

    def hint(self, given: Mapping[str, Literal]) -> str:
        """Return what to tell somebody who answers so, or ""."""
        return next((says for when, says in self.hints if all(self._is_as(n, given.get(n), when[n]) for n in when)), "")

    def hint_for_all(self) -> str:
        """Return what is told whatever somebody answers, or ""."""
        return next((says for when, says in self.hints if not when), "")

    def is_right(self, name: str, given: Literal) -> bool:
        """Return whether one field is right."""
        wanted = self.answers[name]
        comparable = type(given) is type(wanted) or (_is_number(given) and _is_number(wanted))
        return comparable and self._is_as(name, given, wanted)

    def _is_as(self, name: str, given: Literal, other: Literal) -> bool:
        """Return whether an answer to a field is another one; numbers may be as far from it as from the right one."""
        if _is_number(other) and _is_number(given):
            return math.isclose(float(given), float(other), rel_tol=self.within.get(name, 0.0), abs_tol=1e-9)  # type: ignore[arg-type]
        return given == other


def read_question(path: Path) -> Question:
    """Return the question in a file.

    Raises:
        ConfigError: If it is no question.
    """
    plain = _read(path)
    try:
        fields = {
            name: Field(each["asks"], tuple(each.get("choices", ())), each.get("unit", ""))
            for name, each in plain["fields"].items()
        }
        return Question(str(plain["kind"]), str(plain["asks"]), fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not a question ({plainly(error)}); it needs kind, asks and fields") from None


def read_key(path: Path) -> Key:
    """Return the key in a file.

    Raises:
        ConfigError: If it is no key.
    """
    plain = _read(path)
    try:
        hints = tuple((dict(each["when"]), str(each["says"])) for each in plain.get("hints", ()))
        return Key(dict(plain["answers"]), str(plain["reason"]), dict(plain.get("within", {})), hints)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not an answer key ({plainly(error)}); it needs answers, reason and hints"
        ) from None


def misuse(question: Question, given: Mapping[str, Literal]) -> str:
    """Return why an answer cannot be judged, or ""."""
    if set(given) != set(question.fields):
        wanted = ", ".join(f"{name}=..." if name else "your answer" for name in question.fields)
        return f"It asks for {wanted}; you gave {join([name or 'an answer' for name in given]) or 'nothing'}."
    for name, field in question.fields.items():
        value = given[name]
        if _is_number(value) and not -_LARGEST < value < _LARGEST:  # type: ignore[operator]
            return f"{f'{name} ' if name else 'It '}is {field.takes()}; you gave one of more than 300 digits."
        fits = value in field.choices if field.choices else _is_number(value)
        if value is not None and not fits:
            return f"{f'{name} ' if name else 'It '}is {field.takes()}; you gave {value!r}."
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({error})") from None
