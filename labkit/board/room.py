"""What the board keeps beside results: who wants help, who is done, guesses, kinds of mistake; the instructor's say.

The instructor's view has a link of its own: what it shows of single learners is on no wall.
"""

from __future__ import annotations

import json
import math
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median_low
from time import time
from typing import Any

from labkit.board.results import Exercises, Learners, Reported, Results, check_key, check_nickname
from labkit.errors import ConfigError
from labkit.slugs import is_slug

WANTS = ("help", "done", "")
MOST_GUESSES = 100
_SHOWN_S = 1800.0
_LONG_S = 600.0
_LONGEST_WORD = 20
_TABLES = {
    "saying": "nickname TEXT PRIMARY KEY, what TEXT NOT NULL, since_s REAL NOT NULL",
    "guess": "nickname TEXT NOT NULL, guess TEXT NOT NULL, value TEXT NOT NULL, unit TEXT NOT NULL, at_s REAL NOT NULL,"
    " PRIMARY KEY (nickname, guess)",
    "mistake": "nickname TEXT NOT NULL, exercise TEXT NOT NULL, mistake TEXT NOT NULL,"
    " PRIMARY KEY (nickname, exercise)",
    "instructor": "token TEXT NOT NULL",
    "measured": "nickname TEXT NOT NULL, guess TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (nickname, guess)",
    "revealed": "guess TEXT PRIMARY KEY",
}


class Room(Results):
    """The results of a class, and what else its room tells.

    Args:
        path: The file; made if it is not there.
        now: Seconds since the epoch.
        predictions: What the course has guessed, with its unit; None for a board that has no course.
        questions: What the course asks there, by the same names, where it asks in a sentence.
    """

    of_a_learner = ("saying", "guess", "measured", "mistake", *Results.of_a_learner)

    def __init__(
        self,
        path: Path,
        now: Callable[[], float] = time,
        predictions: Mapping[str, str] | None = None,
        questions: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(path, now)
        self._predictions = predictions
        self._questions = questions or {}
        for name, columns in _TABLES.items():
            self._base.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
        found = self._base.execute("SELECT token FROM instructor").fetchone()
        self.instructors_token: str = found[0] if found else secrets.token_urlsafe(12)
        if not found:
            self._base.execute("INSERT INTO instructor VALUES (?)", (self.instructors_token,))

    def join(self, plain: object, address: str = "") -> str:
        """Return what the board calls a learner who joins.

        Raises:
            ConfigError: If the name is taken, or the board full.
        """
        nickname, key, _ = _fields(plain, ())
        with self.changing():
            return self.admitted(nickname, key, address)

    def say(self, plain: object, address: str = "") -> None:
        """Write down that a learner wants help, is done, or neither.

        Raises:
            ConfigError: If it is anything else.
        """
        nickname, key, rest = _fields(plain, ("what",))
        if rest["what"] not in WANTS:
            raise ConfigError("a learner says help, done, or nothing")
        with self.changing():
            nickname = self.admitted(nickname, key, address)
            self._base.execute("DELETE FROM saying WHERE nickname = ?", (nickname,))
            if rest["what"]:
                self._base.execute("INSERT INTO saying VALUES (?, ?, ?)", (nickname, rest["what"], self._now()))

    def helped(self, nickname: str) -> None:
        """Take a learner off those who want help: somebody has been there.

        Raises:
            ConfigError: If nobody is called so.
        """
        self._key_of(nickname)
        with self.changing():
            self._base.execute("DELETE FROM saying WHERE nickname = ? AND what = 'help'", (nickname,))

    def guess(self, plain: object, address: str = "") -> None:
        """Write down what a learner guesses; a later guess replaces it.

        Raises:
            ConfigError: If it is no number, word or flag.
        """
        nickname, key, rest = _fields(plain, ("guess", "value", "unit"))
        unit = self._asked(rest, rest["unit"])
        if not isinstance(unit, str) or len(unit) > 20:
            raise ConfigError("a guess has a unit of at most 20 characters")
        with self.changing():
            nickname = self.admitted(nickname, key, address)
            self._has_room(nickname, "guess")
            self._base.execute(
                "INSERT OR REPLACE INTO guess VALUES (?, ?, ?, ?, ?)",
                (nickname, rest["guess"], json.dumps(rest["value"]), unit, self._now()),
            )

    def measured(self, plain: object, address: str = "") -> None:
        """Write down what came out on a learner's machine where they had guessed, for the wall once it is revealed.

        Raises:
            ConfigError: As for `guess`.
        """
        nickname, key, rest = _fields(plain, ("guess", "value"))
        self._asked(rest, "")
        with self.changing():
            nickname = self.admitted(nickname, key, address)
            self._has_room(nickname, "measured")
            self._base.execute(
                "INSERT OR REPLACE INTO measured VALUES (?, ?, ?)", (nickname, rest["guess"], json.dumps(rest["value"]))
            )

    def reveal(self, guess: str) -> None:
        """Show on the wall what came out, beside everybody's guesses.

        Raises:
            ConfigError: If nobody's machine has said what came out.
        """
        if self._came_out(guess) is None:
            raise ConfigError("nobody's machine has measured it yet; run its cell in a notebook that joined")
        with self.changing():
            self._base.execute("INSERT OR IGNORE INTO revealed VALUES (?)", (guess,))

    def _asked(self, said: Mapping[str, Any], unit: object) -> object:
        """Return the unit of a guess, or of what came out, that can stand on the wall.

        Raises:
            ConfigError: If it cannot.
        """
        value = said["value"]
        finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, int | float | str | bool) or not finite or len(str(value)) > 60:
            raise ConfigError("a guess is a number, a short word, true or false")
        if isinstance(value, str) and (not value.isprintable() or len(value) > _LONGEST_WORD):
            raise ConfigError(f"a guess in words has at most {_LONGEST_WORD} printable characters")
        if not is_slug(said["guess"]):
            raise ConfigError("a guess has the name of what is guessed")
        if self._predictions is None:
            return unit
        if said["guess"] not in self._predictions:
            raise ConfigError("the course on the board's machine does not ask for this guess")
        return self._predictions[said["guess"]]

    def _has_room(self, nickname: str, table: str) -> None:
        count = self._base.execute(f"SELECT count(*) FROM {table} WHERE nickname = ?", (nickname,)).fetchone()[0]
        if count >= MOST_GUESSES:
            raise ConfigError(f"a learner can send at most {MOST_GUESSES} guesses")

    def _noted(self, nickname: str, result: Reported) -> None:
        self._base.execute("DELETE FROM mistake WHERE nickname = ? AND exercise = ?", (nickname, result.exercise))
        if result.mistake and not result.passed:
            self._base.execute("INSERT INTO mistake VALUES (?, ?, ?)", (nickname, result.exercise, result.mistake))

    def remove(self, nickname: str) -> None:
        """Take a learner off the board, with all that they sent; their machine is told.

        Raises:
            ConfigError: If nobody is called so.
        """
        key_hash = self._key_of(nickname)
        with self.changing():
            self._take_off(nickname)
            self._base.execute("INSERT OR REPLACE INTO removed VALUES (?)", (key_hash,))

    def rename(self, nickname: str, to: str) -> None:
        """Call a learner by another name; what their machine sends goes on under it.

        Raises:
            ConfigError: If nobody is called so, or the new name is somebody's or cannot be one.
        """
        check_nickname(to)
        key_hash = self._key_of(nickname)
        if self._base.execute("SELECT 1 FROM learner WHERE nickname = ?", (to,)).fetchone():
            raise ConfigError(f"somebody in this class is already called {to!r}")
        with self.changing():
            for table in self.of_a_learner:
                self._base.execute(f"UPDATE {table} SET nickname = ? WHERE nickname = ?", (to, nickname))
            self._base.execute("INSERT OR REPLACE INTO renamed VALUES (?, ?)", (key_hash, to))

    def _key_of(self, nickname: str) -> str:
        found = self._base.execute("SELECT key_hash FROM learner WHERE nickname = ?", (nickname,)).fetchone()
        if found is None:
            raise ConfigError(f"nobody on the board is called {nickname!r}")
        return str(found[0])

    def standing(self, exercises: Exercises, learners: Learners | None = None) -> dict[str, Any]:
        """Return what the class's page shows, names of who wants help not among it.

        Beside what `Results.standing` has: ``help`` and ``done``, how many; ``help_at``, how many of the first are at
        an exercise, where others are, too, so that it tells nobody's name; ``poll``, the newest question that was
        guessed at in the last half hour: its name, what is asked, unit, everybody's guesses without names and, once
        the instructor has revealed it, what came out (the median of the machines'), or None.
        """
        said = self._base.execute("SELECT nickname, what FROM saying").fetchall()
        count = Counter(what for _, what in said)
        standing = super().standing(exercises, learners)
        where = standing["where"]
        here = Counter(where.values())
        asking = Counter(where[name] for name, what in said if what == "help" and name in where)
        return {
            **standing,
            "help": count["help"],
            "help_at": {at: asked for at, asked in asking.items() if here[at] > asked},
            "done": count["done"],
            "poll": self._poll(),
        }

    def instructors_view(self, exercises: Exercises) -> dict[str, Any]:
        """Return what the instructor's page shows: the class's, and what it alone may know.

        ``helped`` are nicknames, seconds, the exercise they are on and the mistake that was recognised in it ("" for
        none), longest first; ``stuck`` the same of those who do not ask and have been on one exercise for ten minutes
        or more, at most five; ``finished`` nicknames; ``mistakes`` by exercise the mistakes that were recognised in
        what learners have now, with their nicknames, commonest first; ``came_out`` what `reveal` would show, None for
        nothing yet.
        """
        now = self._now()
        said = self._base.execute("SELECT nickname, what, since_s FROM saying ORDER BY since_s").fetchall()
        own = {(name, each): what for name, each, what in self._base.execute("SELECT * FROM mistake ORDER BY nickname")}
        made: dict[str, dict[str, list[str]]] = {}
        for (name, exercise), mistake in own.items():
            made.setdefault(exercise, {}).setdefault(mistake, []).append(name)
        learners = self.learners(exercises)
        standing = self.standing(exercises, learners)
        on: dict[str, str] = standing["where"]
        said_so = {name for name, _, _ in said}
        long = sorted(
            (int(since), name) for name, (_, since) in learners[1].items()
            if name not in said_so and now - since >= _LONG_S
        )  # fmt: skip
        return {
            **standing,
            "helped": [
                (name, int(now - since), at := on.get(name, ""), own.get((name, at), ""))
                for name, what, since in said
                if what == "help"
            ],
            "came_out": self._came_out(standing["poll"]["guess"]) if standing["poll"] else None,
            "stuck": [(name, int(now - since), on[name], own.get((name, on[name]), "")) for since, name in long[:5]],
            "finished": [name for name, what, _ in said if what == "done"],
            "mistakes": {
                exercise: sorted(kinds.items(), key=lambda kind: (-len(kind[1]), kind[0]))
                for exercise, kinds in made.items()
            },
        }

    def _poll(self) -> dict[str, Any] | None:
        newest = self._base.execute("SELECT guess, unit, max(at_s) FROM guess").fetchone()
        if newest[0] is None or self._now() - newest[2] > _SHOWN_S:
            return None
        rows = self._base.execute("SELECT value FROM guess WHERE guess = ?", (newest[0],)).fetchall()
        values = sorted((json.loads(value) for (value,) in rows), key=_in_order)
        shown = self._base.execute("SELECT 1 FROM revealed WHERE guess = ?", (newest[0],)).fetchone()
        came_out = self._came_out(newest[0]) if shown else None
        asked = self._questions.get(newest[0], "")
        return {"guess": newest[0], "asked": asked, "unit": newest[1], "values": values, "came_out": came_out}

    def _came_out(self, guess: str) -> int | float | str | bool | None:
        """Return what most machines found: of numbers the median, else the commonest; None for nothing yet."""
        rows = self._base.execute("SELECT value FROM measured WHERE guess = ? ORDER BY rowid", (guess,)).fetchall()
        found = [json.loads(value) for (value,) in rows]
        numbers = [each for each in found if isinstance(each, int | float) and not isinstance(each, bool)]
        if numbers:
            return median_low(numbers)
        return Counter(found).most_common(1)[0][0] if found else None


def _in_order(value: object) -> tuple[bool, float, str]:
    """Return what sorts guesses: numbers by size, then flags and words."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return not is_number, float(value) if is_number else 0.0, str(value)  # type: ignore[arg-type]


def _fields(plain: object, wanted: tuple[str, ...]) -> tuple[str, str, dict[str, Any]]:
    if not isinstance(plain, dict) or set(plain) != {"nickname", "key", *wanted}:
        raise ConfigError(f"the message must have the fields {', '.join(('nickname', 'key', *wanted))} and no others")
    check_nickname(plain["nickname"])
    check_key(plain["key"])
    return plain["nickname"], plain["key"], plain
