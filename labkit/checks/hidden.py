"""Hidden cases: one file an exercise in a course's ``solutions/hidden/LESSON/``, each with a function `cases`.

Points are given for all of an exercise's hidden cases together. They are new combinations of what the visible cases and
the text state, drawn from a seed; what several files of a lesson draw alike stands beside them, as
``hidden.LESSON.NAME``.
"""

from __future__ import annotations

import random
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from labkit.checks.case import Case
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

    def of(self, exercise_id: str, draw_seed: int) -> list[Case]:
        """Return an exercise's cases, the same ones for the same seed.

        Raises:
            ConfigError: If the lesson has no hidden cases for it.
        """
        if not (self._folder / f"{exercise_id}.py").is_file():
            raise ConfigError(f"there are no hidden cases for {exercise_id}: {self._folder} has no {exercise_id}.py")
        module = import_module(f"{_PACKAGE}.{self._folder.name}.{exercise_id}")
        found: list[Case] = module.cases(random.Random(f"{exercise_id} {draw_seed}"))
        return found


def seed(draw: random.Random) -> int:
    """Return a seed for a case that draws its own inputs, 0 <= seed < 2**30."""
    return draw.randrange(1 << 30)
