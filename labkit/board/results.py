"""What the board keeps of each learner and exercise: passed or not yet, since when, how many tries."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from labkit.errors import ConfigError, EnvironmentProblem

MOST_LEARNERS = 1000
LONGEST_NICKNAME = 24
_RANKED = 10

# Lesson -> its exercises as (slug, number, title), in order.
Exercises = Mapping[str, Sequence[tuple[str, str, str]]]
# Everybody's [passed, tries] by exercise, and of those who are on an exercise which, and since when (seconds).
Learners = tuple[dict[str, dict[str, list[int]]], dict[str, tuple[str, float]]]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS class (token TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS learner (nickname TEXT PRIMARY KEY, key_hash TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS seat (
    key_hash TEXT PRIMARY KEY, nickname TEXT NOT NULL REFERENCES learner, address TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS result (
    nickname TEXT NOT NULL REFERENCES learner, exercise TEXT NOT NULL, passed INTEGER NOT NULL,
    tries INTEGER NOT NULL, first_s REAL NOT NULL, last_s REAL NOT NULL, PRIMARY KEY (nickname, exercise)
);
CREATE TABLE IF NOT EXISTS renamed (key_hash TEXT PRIMARY KEY, nickname TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS relay (secret TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS removed (key_hash TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS design (
    nickname TEXT NOT NULL REFERENCES learner, exercise TEXT NOT NULL, score REAL NOT NULL,
    PRIMARY KEY (nickname, exercise)
);
"""


_MARK = {"class", "learner", "result"}
"""Tables that every board's file has had from the first."""


@dataclass(frozen=True)
class Reported:
    """One result a learner's ``labkit.check`` sends: all that ever leaves their machine.

    Attributes:
        plans: Of a design that is data: the plan of each visible case, as it came; else None.
        score: What the board found the plans to be worth, 1.0 for as good as the best known; None without plans.
        mistake: The name of the mistake that the check recognised, or "".
    """

    nickname: str
    key: str
    exercise: str
    passed: bool
    plans: object = None
    score: float | None = None
    mistake: str = ""


def reported(plain: object, known: Exercises) -> Reported:
    """Return a result read from JSON.

    Raises:
        ConfigError: If a field is missing, of the wrong type, too long, or names no exercise of the course.
    """
    wanted = {"nickname", "key", "exercise", "passed"}
    if not isinstance(plain, dict) or set(plain) - {"plans", "mistake"} != wanted:
        raise ConfigError(
            "a result has the fields nickname, key, exercise and passed, optionally plans and mistake, and no others"
        )
    nickname, key, exercise, passed = (plain[name] for name in ("nickname", "key", "exercise", "passed"))
    mistake = plain.get("mistake", "")
    if not isinstance(passed, bool) or not isinstance(mistake, str) or len(mistake) > 80 or not mistake.isprintable():
        raise ConfigError("passed must be true or false, and mistake a name of at most 80 printable characters")
    check_key(key)
    check_nickname(nickname)
    if not isinstance(exercise, str) or exercise not in {each for lesson in known.values() for each, _, _ in lesson}:
        raise ConfigError(
            "the course on the board's machine has no such exercise; it may be another version of the course"
        )
    return Reported(nickname, key, exercise, passed, plain.get("plans"), mistake=mistake)


def check_key(key: object) -> None:
    """Return if it can be a learner's key.

    Raises:
        ConfigError: If not.
    """
    if not isinstance(key, str) or not 8 <= len(key) <= 64 or not key.isprintable():
        raise ConfigError("key must be a text of 8 to 64 printable characters")


def check_nickname(nickname: object) -> None:
    """Return if the nickname can be shown on a wall.

    Raises:
        ConfigError: If it is empty, longer than 24 characters, or holds what cannot be printed on one line.
    """
    plain = isinstance(nickname, str) and nickname.isprintable() and nickname == nickname.strip()
    if not plain or not 1 <= len(str(nickname)) <= LONGEST_NICKNAME:
        raise ConfigError(f"a nickname has 1 to {LONGEST_NICKNAME} printable characters, and no space at either end")


class Results:
    """The results of one class in one SQLite file; everything is written before a call returns.

    Args:
        path: The file; made if it is not there.
        now: Seconds since the epoch.

    Raises:
        EnvironmentProblem: If the file cannot be opened, or is something else.
    """

    of_a_learner: tuple[str, ...] = ("result", "design", "learner", "seat")

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._now = now
        with ExitStack() as undo:
            try:
                path.touch(mode=0o600)  # it holds the instructor's link
                self._base = undo.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
                there = {name for (name,) in self._base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if there and not there >= _MARK:
                    raise EnvironmentProblem(
                        f"{path} is another program's database (it has the tables {', '.join(sorted(there)[:5])}), so "
                        "nothing was written to it; name a new file with --results FILE"
                    )
                self._base.execute("PRAGMA journal_mode=WAL")
                self._base.executescript(_SCHEMA)
            except (sqlite3.Error, OSError) as error:
                raise EnvironmentProblem(
                    f"the board cannot keep its results in {path}: {error}; choose another file with --results FILE"
                ) from error
            undo.pop_all()  # it stays open
        found = self._base.execute("SELECT token FROM class").fetchone()
        self.token: str = found[0] if found else self._new_token()
        kept = self._base.execute("SELECT secret FROM relay").fetchone()
        self.relay_secret: str = kept[0] if kept else secrets.token_hex(32)
        if not kept:
            self._base.execute("INSERT INTO relay VALUES (?)", (self.relay_secret,))

    def _new_token(self) -> str:
        token = "-".join("".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(5)) for _ in "12")
        self._base.execute("INSERT INTO class VALUES (?)", (token,))
        return token

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def record(self, result: Reported, address: str = "") -> None:
        """Write a result down; what has passed stays passed.

        Args:
            result: What a learner's machine sent.
            address: From where.

        Raises:
            ConfigError: If the nickname is another learner's, the key has another nickname, or the board is full.
        """
        with self.changing():
            nickname = self.admitted(result.nickname, result.key, address)
            now = self._now()
            self._base.execute(
                "INSERT INTO result VALUES (?, ?, ?, 1, ?, ?) ON CONFLICT (nickname, exercise) DO UPDATE SET"
                " tries = tries + (1 - passed), passed = max(passed, excluded.passed), last_s = excluded.last_s",
                (nickname, result.exercise, int(result.passed), now, now),
            )
            if result.score is not None:
                self._base.execute(
                    "INSERT INTO design VALUES (?, ?, ?) ON CONFLICT (nickname, exercise) DO UPDATE SET"
                    " score = min(score, excluded.score)",
                    (nickname, result.exercise, result.score),
                )
            self._noted(nickname, result)

    def _noted(self, nickname: str, result: Reported) -> None:
        """Write down what else there is to a result, in the same change."""

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Make what is done within it one change of the file, or none."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._base.execute("COMMIT")
        except BaseException:
            self._base.execute("ROLLBACK")
            raise

    def admitted(self, nickname: str, key: str, address: str) -> str:
        """Return what the board calls a learner, who takes a seat if they have none.

        Raises:
            ConfigError: As for `record`, or if the instructor took them off the board.
        """
        key_hash = hashlib.sha256(key.encode()).hexdigest()
        if self._base.execute("SELECT 1 FROM removed WHERE key_hash = ?", (key_hash,)).fetchone():
            raise ConfigError(f"the instructor took {nickname!r} off the board; join again with another nickname")
        if renamed := self._base.execute("SELECT nickname FROM renamed WHERE key_hash = ?", (key_hash,)).fetchone():
            return str(renamed[0])
        found = self._base.execute("SELECT key_hash FROM learner WHERE nickname = ?", (nickname,)).fetchone()
        if found is None:
            self._take_seat(nickname, key_hash, address)
            self._base.execute("INSERT INTO learner VALUES (?, ?)", (nickname, key_hash))
        elif not hmac.compare_digest(found[0], key_hash):
            raise ConfigError(f"somebody else in this class is called {nickname!r}; choose another nickname")
        return nickname

    def _take_seat(self, nickname: str, key_hash: str, address: str) -> None:
        """Give a key its one nickname; on a full board the seat of who came first and has tried nothing yet.

        Seats are not counted by address: a room sits behind one router. Whoever loses a seat takes another with the
        next thing that they send.

        Raises:
            ConfigError: If the key has one, or everybody on a full board has tried an exercise.
        """
        seat = self._base.execute("SELECT nickname FROM seat WHERE key_hash = ?", (key_hash,)).fetchone()
        if seat is not None:
            raise ConfigError(f"you joined this class as {seat[0]!r}; join with that nickname to go on")
        if self._base.execute("SELECT count(*) FROM learner").fetchone()[0] >= MOST_LEARNERS:
            idle = self._base.execute(
                "SELECT nickname FROM seat WHERE nickname NOT IN (SELECT nickname FROM result) ORDER BY rowid LIMIT 1"
            ).fetchone()
            if idle is None:
                raise ConfigError(f"the board is full: it holds {MOST_LEARNERS} learners")
            self._take_off(idle[0])
        self._base.execute("INSERT INTO seat VALUES (?, ?, ?)", (key_hash, nickname, address))

    def _take_off(self, nickname: str) -> None:
        """Remove a learner with all that they sent, in the change that is under way."""
        for table in self.of_a_learner:
            self._base.execute(f"DELETE FROM {table} WHERE nickname = ?", (nickname,))

    def standing(self, exercises: Exercises, learners: Learners | None = None) -> dict[str, Any]:
        """Return what the page shows, as plain JSON values, of what `learners` has returned; without it that is asked.

        ``learners``: nickname -> exercise -> [passed, tries]; ``where``: nickname -> the exercise they are on, of those
        who are on one: what they checked last or, once that has passed, the next of its lesson that has not;
        ``lessons``: per lesson its exercises with how many passed, how many are on it and the median minutes these have
        been on it; ``holdup``: the exercise most learners are on, None if nobody is on any; ``rankings``: of each
        design the nicknames and scores, best first.
        """
        own_results, on = learners or self.learners(exercises)
        minutes: dict[str, list[float]] = {}
        for where, since in on.values():
            minutes.setdefault(where, []).append((self._now() - since) / 60)
        lessons: dict[str, list[dict[str, Any]]] = {
            lesson: [
                {
                    "id": each,
                    "number": number,
                    "title": title,
                    "passed": sum(own.get(each, [0])[0] for own in own_results.values()),
                    "on_it": len(minutes.get(each, ())),
                    "minutes": round(median(minutes[each])) if each in minutes else 0,
                }
                for each, number, title in listed
            ]
            for lesson, listed in exercises.items()
        }
        every = [entry for listed in lessons.values() for entry in listed]
        holdup = max(every, key=lambda entry: entry["on_it"], default=None)
        return {
            "learners": dict(sorted(own_results.items(), key=lambda pair: _natural(pair[0]))),
            "where": {name: where for name, (where, _) in on.items()},
            "lessons": lessons,
            "holdup": holdup["id"] if holdup and holdup["on_it"] else None,
            "rankings": self._rankings(),
        }

    def learners(self, exercises: Exercises) -> Learners:
        """Return everybody's results, and of those who are on an exercise which, and since when."""
        rows = self._base.execute(
            "SELECT nickname, exercise, passed, tries, first_s, last_s FROM result ORDER BY last_s"
        ).fetchall()
        names = [name for (name,) in self._base.execute("SELECT nickname FROM learner")]
        learners: dict[str, dict[str, list[int]]] = {name: {} for name in names}
        newest: dict[str, tuple[str, float]] = {}
        for nickname, exercise, passed, tries, first_s, last_s in rows:
            learners.setdefault(nickname, {})[exercise] = [passed, tries]
            newest[nickname] = exercise, last_s if passed else first_s
        now_on = {name: (_now_on(at, learners[name], exercises), since) for name, (at, since) in newest.items()}
        return learners, {name: (where, since) for name, (where, since) in now_on.items() if where}

    def _rankings(self) -> dict[str, list[tuple[str, float]]]:
        rankings: dict[str, list[tuple[str, float]]] = {}
        rows = self._base.execute("SELECT exercise, nickname, score FROM design ORDER BY exercise, score, nickname")
        for exercise, nickname, score in rows:
            rankings.setdefault(exercise, []).append((nickname, round(score, 4)))
        return {exercise: ranked[:_RANKED] for exercise, ranked in rankings.items()}


def _now_on(newest: str, own: Mapping[str, Sequence[int]], exercises: Exercises) -> str:
    """Return the exercise that a learner is on whose newest check was of this one; "" if their lesson is done."""
    passed = {each for each, (has_passed, _) in own.items() if has_passed}
    if newest not in passed:
        return newest
    lesson = next((listed for listed in exercises.values() if newest in [each for each, _, _ in listed]), ())
    listed = [each for each, _, _ in lesson]
    following = listed[listed.index(newest) + 1 :] if listed else []
    return next((each for each in following if each not in passed), "")


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that puts "table 2" before "table 10"."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part.casefold()) for part in re.split(r"(\d+)", name) if part
    ]
