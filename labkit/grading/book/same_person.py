"""Who of a roster's file is whom: told by what can be nobody else's, and listed where that tells nothing.

Nobody is guessed at: a value that people of one file share is nobody's number, a name that two people have needs an
address or a number beside it, and a name with another address may be another person.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from labkit.grading.book.file_names import key, plain
from labkit.grading.book.roster_files import Entry

_CANVAS = key("Canvas", "")


@dataclass(frozen=True)
class Rows:
    """A file's rows, each of a person of its own.

    Attributes:
        entries: Those that can be taken.
        shared: Values that several people have and that were taken as nobody's, in words.
        unclear: Rows of which it is not clear whether they are one person's, in words.
    """

    entries: tuple[Entry, ...]
    shared: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()


def bare(name: str) -> str:
    """Return a person's name without what tells two of that name apart."""
    return name.partition(" (")[0]


def called(entry: Entry) -> str:
    """Return how people tell somebody apart from others: name and address, or a number."""
    known = entry.email or min(entry.own, default="")
    return f"{bare(entry.name)} ({known})" if known else bare(entry.name)


def rows_apart(entries: Sequence[Entry]) -> Rows:
    """Return the rows of one file without the values that other people of the file have, too."""
    having: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        for each in entry.own:
            having[each].append(entry)
    shared = {each: mine for each, mine in having.items() if any(_others(mine[0], other) for other in mine[1:])}
    left_out: list[Entry] = []
    told, unclear = [], []
    for value, mine in sorted(shared.items()):
        who = " and ".join(dict.fromkeys(called(_without(each, {value})) for each in mine))
        apart = len({plain(each.name) for each in mine}) == len(mine) and all(each.own - set(shared) for each in mine)
        if apart:
            told.append(f"{value!r} stands beside {who}, so it was taken as nobody's number or address")
        else:
            unclear.append(f"{value!r} stands beside {who}, who may be one person or several")
            left_out += mine
    nameless = Counter(plain(each.name) for each in entries if not each.own)
    named = Counter(plain(each.name) for each in entries)
    for name in sorted(name for name in nameless if named[name] > 1):
        twins = [each for each in entries if plain(each.name) == name]
        unclear.append(f"{len(twins)} rows are of a {twins[0].name}, and not all have an address or a number")
        left_out += twins
    kept = [_without(each, shared) for each in entries if each not in left_out]
    return Rows(tuple(kept), tuple(told), tuple(unclear))


def known_as(entry: Entry, people: Mapping[str, Entry], file: Collection[Entry], by_name: bool) -> tuple[str, str]:
    """Return the person in the roster that a row is of, or "", and in words why that is not clear, or "".

    Args:
        entry: The row.
        people: Who is in the roster, by name.
        file: All rows of its file.
        by_name: Whether a name that roster and file have once each is one person, whatever the addresses.
    """
    same = [each for each in people.values() if entry.own & each.own]
    if len(same) > 1:
        return "", f"{called(entry)} fits {' and '.join(map(called, same))}"
    if same:
        if _other_addresses(entry, same[0]) and not _alike(entry.name, bare(same[0].name)):
            what = " and ".join(sorted(entry.own & same[0].own))
            return "", f"{called(entry)} has {what} of {called(same[0])}, and another name and address"
        return same[0].name, ""
    namesakes = [each for each in people.values() if _seen(bare(each.name)) == _seen(entry.name)]
    # Canvas gives a number to one person only, so another number is another person.
    namesakes = [each for each in namesakes if not (_canvas(entry) and _canvas(each))]
    if not namesakes:
        return "", ""
    twins = [each for each in file if _seen(each.name) == _seen(entry.name)]
    free = [each for each in namesakes if not any(each.own & other.own for other in file)]
    if not free:
        return "", ""  # the file has those by their numbers, so this is somebody else
    if len(namesakes) > 1 or len(twins) > 1:
        return "", f"{called(entry)} has the name of {' and '.join(map(called, namesakes))}"
    if not by_name and entry.email and free[0].email and plain(entry.email) != plain(free[0].email):
        return "", f"{called(entry)} has the name of {called(free[0])} and another address"
    return free[0].name, ""


def _seen(name: str) -> str:
    """Return a name as people see it, without signs of no width and in one form of its letters."""
    return plain("".join(each for each in unicodedata.normalize("NFKC", name) if unicodedata.category(each) != "Cf"))


def _canvas(entry: Entry) -> bool:
    return any(each.startswith(_CANVAS) for each in entry.own)


def _others(one: Entry, other: Entry) -> bool:
    """Return whether two rows that share something can be two people: other names, or other addresses."""
    return plain(bare(one.name)) != plain(bare(other.name)) or _other_addresses(one, other)


def _other_addresses(one: Entry, other: Entry) -> bool:
    return bool(one.email and other.email) and plain(one.email) != plain(other.email)


def _alike(one: str, other: str) -> bool:
    """Return whether one name holds all words of the other."""
    words, others = set(plain(one).split()), set(plain(other).split())
    return words <= others or others <= words


def _without(entry: Entry, values: Collection[str]) -> Entry:
    email = "" if plain(entry.email) in values else entry.email
    return replace(entry, keys=entry.keys - set(values), email=email)
