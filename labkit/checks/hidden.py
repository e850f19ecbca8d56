"""Hidden cases: one file an exercise in a course's ``solutions/hidden/LESSON/``, each with a function `cases`.

Points are given for all of an exercise's hidden cases together. They are new combinations of what the visible cases and
the text state, drawn from a seed; what several files of a lesson draw alike stands beside them, as
``hidden.LESSON.NAME``.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

from labkit.checks.case import Case
from labkit.checks.on_ranks.other_kind import OTHER_KIND
from labkit.errors import ConfigError

_PACKAGE = "hidden"


class HiddenCases:
    """The hidden cases of one lesson.

    Args:
        folder: ``solutions/hidden/LESSON``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]
        package = ModuleType(_PACKAGE, "Hidden cases of a course.")
        package.__path__ = [str(folder.parent)]
        sys.modules[_PACKAGE] = package

    def of(self, exercise_id: str, secret: int) -> list[Case]:
        """Return an exercise's cases, the same ones for the same secret.

        Raises:
            ConfigError: If the lesson has no hidden cases for it.
        """
        if not (self._folder / f"{exercise_id}.py").is_file():
            raise ConfigError(f"there are no hidden cases for {exercise_id}: {self._folder} has no {exercise_id}.py")
        module = import_module(f"{_PACKAGE}.{self._folder.name}.{exercise_id}")
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
