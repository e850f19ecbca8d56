"""The roster: one identity for each person, whatever the systems call them, kept with the gradebook."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from labkit.errors import ConfigError
from labkit.grading.book.comments_and_requests import CommentsAndRequests
from labkit.grading.book.file_names import identity, keys, of_system, plain
from labkit.grading.book.roster_files import GRADESCOPE, Entry
from labkit.grading.book.same_person import bare, called, known_as, rows_apart
from labkit.grading.book.tables import Person, Report


@dataclass(frozen=True)
class Imported:
    """What a file brought.

    Attributes:
        new: Names of people who were not known.
        known: Of those who were.
        unclear: Rows that fit several people, in words; none of these was taken.
        shared: Values that several people of the file have, in words; they were taken as nobody's.
    """

    new: tuple[str, ...]
    known: tuple[str, ...]
    unclear: tuple[str, ...]
    shared: tuple[str, ...] = ()


@dataclass(frozen=True)
class Belonging:
    """Whose files are whose.

    Attributes:
        people: The person of each file's name; of a group's, one of them.
        together: The others of a group whose one submission a system keeps for all.
        unknown: Files of nobody in the roster.
        unclear: Files that fit several people, in words.
    """

    people: Mapping[str, str]
    unknown: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    together: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Roster(CommentsAndRequests):
    """People, and what they are known by."""

    def people(self) -> dict[str, Entry]:
        """Return everybody in the roster, by name; nobody where none was imported."""
        with self.reading() as session:
            return self._people(session)

    def import_roster(self, entries: Iterable[Entry], *, by_name: bool = False) -> Imported:
        """Add people, or what else is now known of them: who shares an address, number or login is the same person.

        Args:
            entries: Of one file.
            by_name: Whether a name that roster and file have once each is one person, though the addresses differ.
        """
        rows = rows_apart(list(entries))

        def add(session: Session) -> Imported:
            people = self._people(session)
            new: list[str] = []
            known: list[str] = []
            unclear = list(rows.unclear)
            for entry in rows.entries:
                name, why_not = known_as(entry, people, rows.entries, by_name)
                if why_not:
                    unclear.append(why_not)
                    continue
                old = people.get(name)
                merged = _merged(old, entry) if old else _told_apart(entry, people)
                (known if old else new).append(merged.name)
                people[merged.name] = merged
                if merged != old:
                    extra = merged.extra / timedelta(minutes=1) if merged.extra is not None else None
                    session.add(
                        Person(
                            name=merged.name, keys="\n".join(sorted(merged.keys)), email=merged.email,
                            section=merged.section, team=merged.team or "", extra_minutes=extra,
                            recorded_at=self._now(),
                        )
                    )  # fmt: skip
            return Imported(tuple(new), tuple(known), tuple(unclear), rows.shared)

        return self._write(add)

    def whose(self, names: Iterable[str]) -> Belonging:
        """Return which person each file belongs to; without a roster each is its own."""
        listed = list(names)
        people = self.people()
        if not people:
            return Belonging({name: name for name in listed})
        ends = _ends(people.values())
        assignments = _assignments([*listed, *self._file_names()], ends)
        by_key: dict[str, set[str]] = defaultdict(set)
        by_name: dict[str, set[str]] = defaultdict(set)
        for person in people.values():
            for each in person.keys:
                by_key[each].add(person.name)
            for each in _names(person):
                by_name[each].add(person.name)
        found: dict[str, str] = {}
        together: dict[str, tuple[str, ...]] = {}
        unknown, unclear = [], []
        for name in listed:
            mine: set[str] = set().union(*(by_key.get(each, set()) for each in keys(name)))
            mine = mine or set().union(*(by_name.get(each, set()) for each in _named(name)))
            mine = mine or _at_the_end(name, ends, assignments)
            named = of_system(name)
            if len(mine) == 1 or (mine and named is not None and named.system == GRADESCOPE):
                found[name], *others = sorted(mine)
                together |= {name: tuple(others)} if others else {}
            elif mine:
                unclear.append(f"{name} fits {' and '.join(sorted(mine))}")
            else:
                unknown.append(name)
        return Belonging(found, tuple(unknown), tuple(unclear), together)

    def person(self, asked: str) -> str:
        """Return the name in the gradebook of somebody named by name, address, number or login.

        Raises:
            ConfigError: If that is nobody, or several.
        """
        people = self.people()
        if asked in people and asked != bare(asked):
            return asked
        found = [each for each in people.values() if called(each) == asked != bare(asked)]
        found = found or [each for each in people.values() if identity(asked) and identity(asked) in each.keys]
        found = found or [each for each in people.values() if plain(asked) in _names(each)]
        if len(found) > 1:
            raise ConfigError(
                f"{asked!r} could be {' or '.join(sorted(map(called, found)))}; give the address or the number instead"
            )
        return found[0].name if found else asked

    def known_by(self, student: str) -> frozenset[str]:
        """Return all that a student can be known by: a name only where it is no other's, nor another's address."""
        people = self.people()
        person = people.get(student)
        if person is None:
            return keys(student)
        others = [each for each in people.values() if each.name != person.name]
        alone = not any(_names(person) & (_names(each) | each.keys) for each in others)
        return person.keys | (_names(person) if alone else frozenset())

    def shared_by(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return everybody whose a file is, of those that are somebody's: a team or a group has it together."""
        whose, people = self.whose(names), self.people()
        found = {}
        for name, student in whose.people.items():
            everybody = [student, *whose.together.get(name, ())]
            teams = {people[each].team for each in everybody if each in people} - {"", None}
            found[name] = list(dict.fromkeys([*everybody, *(each for each in people if people[each].team in teams)]))
        return found

    def _file_names(self) -> list[str]:
        """Return the names of all files that were recorded."""
        with self.reading() as session:
            return list(session.scalars(select(Report.file_name).distinct()))

    @staticmethod
    def _people(session: Session) -> dict[str, Entry]:
        return {
            row.name: Entry(
                row.name, frozenset(each for each in row.keys.split("\n") if identity(each)), row.email, row.section,
                row.team,
                None if row.extra_minutes is None else timedelta(minutes=row.extra_minutes),
            )
            for row in session.scalars(select(Person).order_by(Person.id))
        }  # fmt: skip


def attempt_order(name: str) -> int:
    """Return how many files of the same name were handed in before: Canvas counts them in the name."""
    named = of_system(name)
    return named.again if named else 0


def newest(whose: Mapping[str, str]) -> list[str]:
    """Return the newest file of each person: a system says when that one came, and of earlier ones no more.

    Args:
        whose: The person of each file.
    """
    last: dict[str, str] = {}
    for name in sorted(whose, key=attempt_order):
        last[whose[name]] = name
    return sorted(last.values())


def _named(name: str) -> set[str]:
    """Return the names of people that a file's name can mean."""
    named = of_system(name)
    of_moodle = named.name if named and named.system == "Moodle" else ""
    return {plain(name), plain(of_moodle), plain(of_moodle.partition("-")[2])} - {""}  # "Red-Ada Lovelace" in groups


def _ends(people: Iterable[Entry]) -> dict[str, set[str]]:
    """Return who each login, and each team's name, means at the end of a repository's name."""
    ends: dict[str, set[str]] = defaultdict(set)
    teams: set[str] = set()
    for person in people:
        for each in person.own:
            if not each.isdigit():  # a number is nobody's login
                ends[each].add(person.name)
        team = identity(person.team).replace(" ", "-")
        if team and team not in teams:
            teams.add(team)
            ends[team].add(person.name)
    return ends


def _assignments(names: Iterable[str], ends: Mapping[str, set[str]]) -> dict[str, int]:
    """Return what may be an assignment in names of repositories, "02-ring-", and how many names begin with it."""
    known = {f"-{plain(name)}" for name in names}
    starts = {name[: -len(end)] for name in known for end in _fitting(name, ends)}
    return {start: sum(name.startswith(start) for name in known) for start in starts}


def _at_the_end(name: str, ends: Mapping[str, set[str]], assignments: Mapping[str, int]) -> set[str]:
    """Return who a repository of GitHub Classroom is of: "ASSIGNMENT-LOGIN", or "ASSIGNMENT-TEAM" for one of a team.

    The assignment is what most repositories begin with, so that 02-ring-mallory-ada is not ada's; where as many begin
    with several, the shortest, for the longest login counts: of "love" and "ada-love" that of 02-ring-ada-love.
    """
    whole = f"-{plain(name)}"
    mine = [start for start in assignments if whole.startswith(start)]
    if not mine:
        return set()
    start = max(mine, key=lambda each: (assignments[each], -len(each)))
    return ends.get(whole.removeprefix(start), set())


def _fitting(name: str, ends: Mapping[str, set[str]]) -> list[str]:
    """Return which of `ends` stands, with a hyphen before it, at the end of a name that begins with one."""
    parts = [name[at + 1 :] for at, letter in enumerate(name) if letter == "-"]
    return [each for each in parts if each in ends]


def _names(person: Entry) -> frozenset[str]:
    return replace(person, name=bare(person.name)).names


def _told_apart(entry: Entry, people: Mapping[str, Entry]) -> Entry:
    """Return an entry whose name nobody has: of two Ada Lovelaces the second's address stands behind the name."""
    if entry.name not in people:
        return entry
    return replace(entry, name=f"{entry.name} ({entry.email or min(entry.keys, default=str(len(people)))})")


def _merged(old: Entry, new: Entry) -> Entry:
    return replace(
        old, keys=old.keys | new.keys, email=old.email or new.email, section=new.section or old.section,
        team=old.team if new.team is None else new.team, extra=new.extra if new.extra is not None else old.extra,
    )  # fmt: skip
