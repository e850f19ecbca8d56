"""Hidden cases: a function `cases` in ``hidden.py`` beside an exercise.

Points are given for all of an exercise's hidden cases together. They are new combinations of what the visible cases and
the text state, drawn from a seed. What several exercises draw alike is in ``hidden_NAME.py`` of the lesson's folder.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from dataclasses import replace
from importlib import import_module

from labkit.checks.case import Case
from labkit.checks.on_ranks.other_kind import OTHER_KIND
from labkit.errors import ConfigError


def hidden_cases(package: str, lesson: str, exercise_id: str, secret: int) -> list[Case]:
    """Return an exercise's hidden cases, the same ones for the same secret.

    Args:
        package: Of the exercises: labkit's own, or what `rooms.own_package` returned.
        lesson: Its slug.
        exercise_id: Its slug.
        secret: What is drawn follows from it.

    Raises:
        ConfigError: If there are none; learners' copies of labkit have none.
    """
    name = f"{package}.{lesson}.{exercise_id}.hidden"
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(
            f"there are no hidden cases for {exercise_id}: {lesson}/{exercise_id} has no hidden.py. A copy of labkit "
            "that learners get has none; grading needs the course's repository."
        ) from None
    found: list[Case] = module.cases(Draw(f"{exercise_id} {secret}"))
    return found


class Draw(random.Random):
    """Draws from a hash: what is seen of it tells neither its secret nor what else is drawn.

    Args:
        secret: What everything follows from.
    """

    def __init__(self, secret: str) -> None:
        super().__init__(0)
        self._secret, self._drawn = secret.encode(), itertools.count()

    def getrandbits(self, count: int, /) -> int:
        """Return a whole number of that many bits."""
        size = -(-count // 8)
        drawn = hashlib.shake_256(b"%d/%s" % (next(self._drawn), self._secret)).digest(size)
        return int.from_bytes(drawn, "little") >> (8 * size - count)

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        return self.getrandbits(53) * 2.0**-53


def seed(draw: random.Random) -> int:
    """Return a seed for a case that draws its own inputs, 0 <= seed < 2**256."""
    return draw.getrandbits(256)


def of_another_kind(case: Case, draw: random.Random) -> Case:
    """Return a case whose driver makes its stand-ins of a class that no other case has, under a drawn name."""
    name = f"Kind{draw.getrandbits(48):x}"
    return replace(case, inputs=tuple({**inputs, OTHER_KIND: name} for inputs in case.inputs))
