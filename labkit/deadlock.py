"""Ranks that wait and cannot go on, told in one voice for every world: who, in which call, for whom, in what circle.

A world says what it knows as `Waiting` records; the sentences are made here and nowhere else.
"""

from __future__ import annotations

import linecache
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from labkit.cells import place
from labkit.timeline.messages import RECEIVES, SENDS
from labkit.units import format_bytes
from labkit.words import join, ranks_in_words, tagged

ANY_RANK = -1
"""The peer of a receive that takes a message from whoever sends one."""
NOBODY_SETS = ", which nobody has set"
"""What is said of a key of a store that a rank waits for."""
FINISHED = "has finished"
"""How a rank ended whose function returned; others die."""

_ALL_SEND = "All of them are in a send, and none has got as far as a receive."
_WAY_OUT = "Way out: let rank {first} receive before it sends, or give both calls to dist.batch_isend_irecv."
_FEWEST_ALIKE = 4
_MOST_LINES = 16
_MOST_LINES_OF_MANY = 6


@dataclass(frozen=True)
class Waiting:
    """What one rank waits for, or one of its threads.

    Attributes:
        rank: Global rank.
        operation: The call it stands in: "recv", "all_reduce", "store.get".
        peers: Who would have to act first: ranks, or numbers of threads.
        peer: Of a message, the rank at the other end, or ANY_RANK; None for anything else.
        tag: Of a message.
        num_bytes: How much the call moves.
        group: What tells this process group from others.
        members: The group's global ranks; () where they are not known.
        number: Of a collective, how many this rank called in the group before; None for anything else.
        disagrees: Ranks that called something else at this point, and what: "is in all_gather instead".
        said: What a call that is neither message nor collective is called in a report.
        where: The learner's line, as `line_of` gives it.
        note: How this is known, where that needs saying.
        thread: The number of a thread that is not the rank's first; -1 for the rank itself.
        label: What the thread is called.
    """

    rank: int
    operation: str
    peers: tuple[int, ...] = ()
    peer: int | None = None
    tag: int = 0
    num_bytes: int = 0
    group: str = ""
    members: tuple[int, ...] = ()
    number: int | None = None
    disagrees: Mapping[int, str] = field(default_factory=dict)
    said: str = ""
    where: str = ""
    note: str = ""
    thread: int = -1
    label: str = ""

    @property
    def key(self) -> int:
        """What `peers` calls it."""
        return self.rank if self.thread < 0 else self.thread

    @property
    def name(self) -> str:
        """What a report calls it."""
        return f"rank {self.rank} ({self.label})" if self.label else f"rank {self.rank}"


def line_of(source: str) -> str:
    """Return "lesson.py, line 12: dist.recv(x)" for the learner's file:line, "" where that is not known."""
    file, _, number = source.rpartition(":")
    code = linecache.getline(file, int(number)).strip()[:120] if number.isdigit() else ""
    return f"{place(source)}: {code}" if code else place(source)


def store_call(operation: str, keys: Sequence[str]) -> str:
    """Return how a report writes a call that waits for keys of a store: "store.get('step')"."""
    shown = ", ".join(repr(key[:60]) for key in keys[:4])
    return f"{operation}({shown}{', ...' if len(keys) > 4 else ''})"


@dataclass(frozen=True)
class Standing:
    """Where all ranks stand at one moment.

    Attributes:
        num_ranks: How many there are.
        waits: What those wait for that wait, in the order of ranks.
        ended: How the others ended, by rank or number of a thread: FINISHED, or "ended with exit status 3".
        names: What threads are called, by number.
    """

    num_ranks: int
    waits: Sequence[Waiting]
    ended: Mapping[int, str] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)

    def sentence(self, waiting: Waiting, *, placed: bool = True) -> str:
        """Return what one of them waits for: "rank 0 waits in recv from rank 1 (16 B), which has finished".

        Args:
            waiting: The record.
            placed: Whether the sentence ends with the learner's line.
        """
        return f"{waiting.name} waits in {self._about(waiting, placed)}"

    def report(self) -> str:
        """Return the report of a deadlock: the sentences of `headline`, then `lines`.

        A place that all of four or more share is said once, and so is what each does that sends or receives as many
        bytes round the circle. In a script the report ends with a way out of sends that wait for each other; in a
        notebook it does not, for finding it is what a lesson asks for.
        """
        places = {waiting.where for waiting in self.waits}
        where = places.pop() if len(places) == 1 else ""
        is_said_once = bool(where) and len(self.waits) >= _FEWEST_ALIKE
        said = self._sentences()
        if is_said_once:
            said.append(f"All of them are at {where}")
        if is_said_once and (alike := self._alike()):
            said.append(f"  each waits in {alike}")
        else:
            said += [f"  {line}" for line in self.lines(placed=not is_said_once)]
        if said[2:3] == [_ALL_SEND] and not any(waiting.where.startswith("Cell ") for waiting in self.waits):
            said += ["", _WAY_OUT.format(first=self.waits[0].rank)]
        return "\n".join(said)

    def _alike(self) -> str:
        """Return what every rank does, each for the next of one circle: "send to the next (4 MB)", or ""."""
        cycle, waits = self._circle(), {waiting.key: waiting for waiting in self.waits}
        follows = zip(cycle, [*cycle[1:], *cycle[:1]], strict=True)
        if len(cycle) != self.num_ranks or len(self.waits) != self.num_ranks:
            return ""
        if any(waits[key].peer != next_one or waits[key].note for key, next_one in follows):
            return ""
        said = {self._call(waiting).replace(f" rank {waiting.peer}", " the next", 1) for waiting in self.waits}
        return said.pop() if len(said) == 1 else ""

    def headline(self) -> str:
        """Return how many ranks wait, in which circle, and what they have in common."""
        return " ".join(self._sentences())

    def _sentences(self) -> list[str]:
        ranks = sorted({waiting.rank for waiting in self.waits})
        if len(ranks) == 1:
            said = [f"Deadlock: rank {ranks[0]} of {self.num_ranks} waits for something that can never happen."]
        else:
            said = [f"Deadlock: {len(ranks)} of {self.num_ranks} ranks wait and none can go on."]
        cycle = self._circle()
        if len(cycle) > 1:
            shown = cycle if len(cycle) <= _MOST_LINES else cycle[:_MOST_LINES_OF_MANY]
            chain = " -> ".join(map(self._name, shown))
            more = "" if len(shown) == len(cycle) else f" -> ... {len(cycle) - len(shown)} more"
            said.append(f"They wait for each other in a circle: {chain}{more} -> {self._name(cycle[0])}.")
        operations = {waiting.operation for waiting in self.waits}
        alone = len(ranks) == 1 or any(waiting.peer is None for waiting in self.waits)
        if not alone and operations <= set(SENDS):
            said.append(_ALL_SEND)
        elif not alone and operations <= set(RECEIVES):
            said.append("All of them are in a receive, and nothing has been sent that would answer one.")
        return said

    def lines(self, *, placed: bool = True) -> list[str]:
        """Return a line for each that waits, those of the circle first, then how the others ended.

        Args:
            placed: Whether a line ends with the learner's.
        """
        places = {key: place for place, key in enumerate(self._circle())}
        ordered = sorted(self.waits, key=lambda waiting: places.get(waiting.key, len(places)))
        lines = [self.sentence(waiting, placed=placed) for waiting in ordered]
        if len(lines) > _MOST_LINES:
            lines = self._together(ordered, placed)
        ranks = {key: words for key, words in self.ended.items() if key < self.num_ranks}
        lines += [f"rank {rank} {words}" for rank, words in sorted(ranks.items()) if words != FINISHED]
        finished = {rank for rank, words in ranks.items() if words == FINISHED} - {each.rank for each in self.waits}
        return lines + ([f"Finished: {_ranks(finished)}."] if finished else [])

    def _about(self, waiting: Waiting, placed: bool = True) -> str:
        why = self._why(waiting)
        at = f"{',' if why else ''} at {waiting.where}" if waiting.where and placed else ""
        return f"{self._call(waiting)}{why}{at}{waiting.note}"

    def _call(self, waiting: Waiting) -> str:
        size = f" ({format_bytes(waiting.num_bytes)})" if waiting.num_bytes else ""
        if waiting.peer is not None:
            end = "any rank" if waiting.peer == ANY_RANK else f"rank {waiting.peer}"
            way = "to" if waiting.operation in SENDS else "from"
            return f"{waiting.operation} {way} {end}{tagged(waiting.tag)}{size}"
        if waiting.number is not None:
            some = 0 < len(waiting.members) < self.num_ranks
            group = f" of {_ranks(waiting.members)}" if some else ""
            return f"{waiting.operation} #{waiting.number + 1}{group}{size}"
        return waiting.said or waiting.operation

    def _why(self, waiting: Waiting) -> str:
        """Return why it waits in vain: the part of the sentence after the call, "" where other lines tell it."""
        peers = [peer for peer in waiting.peers if peer != waiting.key]
        finished = [peer for peer in peers if self.ended.get(peer) == FINISHED]
        if waiting.peers and not peers:
            return ", which only it could answer itself"
        if waiting.number is not None:
            late = [peer for peer in peers if peer not in finished and peer not in waiting.disagrees]
            words = [f", where rank {rank} {what}" for rank, what in sorted(waiting.disagrees.items())]
            words += [f", which {_ranks(late)} {_have(late)} not reached"] if late else []
            finished = [peer for peer in finished if peer not in waiting.disagrees]
            words += [f", which {_ranks(finished)} finished without"] if finished else []
            return "".join(words)
        if waiting.peer is not None and waiting.peer != ANY_RANK:
            ended = self.ended.get(waiting.peer)
            return f", which {ended}" if ended else self._other_tag(waiting)
        if finished and len(finished) == len(peers):
            names = join(map(self._name, finished)) if len(finished) == 1 else _ranks(finished)
            return f", and {names} {_have(finished)} finished"
        return ""

    def _other_tag(self, waiting: Waiting) -> str:
        """Return what the other end does with a message of another tag, "" where it does nothing of the kind."""
        sends = waiting.operation in SENDS
        for there in self.waits:
            meets = there.rank == waiting.peer and there.peer == waiting.rank and there.group == waiting.group
            if meets and there.tag != waiting.tag and there.operation in (RECEIVES if sends else SENDS):
                return f", which {'asks for' if sends else 'sends'} tag {there.tag}"
        return ""

    def _name(self, key: int) -> str:
        return self.names.get(key, f"rank {key}")

    def _circle(self) -> list[int]:
        follows: dict[int, list[int]] = {}
        for waiting in self.waits:
            follows.setdefault(waiting.key, []).extend(waiting.peers)
        return circle(follows)

    def _together(self, ordered: Iterable[Waiting], placed: bool) -> list[str]:
        """Return one line for all that wait alike: the first of these lines, and how many ranks are in none of them."""
        alike: dict[str, list[Waiting]] = {}
        for waiting in ordered:
            alike.setdefault(self._about(waiting, placed), []).append(waiting)
        lines, left = [], len(self.waits)
        for about, group in list(alike.items())[:_MOST_LINES_OF_MANY]:
            left -= len(group)
            if len(group) == 1 or any(waiting.label for waiting in group):
                names = ", ".join(waiting.name for waiting in group)
            else:
                names = f"ranks {_spans([waiting.rank for waiting in group])}"
            lines.append(f"{names} {'waits' if len(group) == 1 else 'wait'} in {about}")
        return [*lines, f"... and {left} more ranks (see .reports of this error)"] if left else lines


def circle(follows: Mapping[int, Iterable[int]]) -> list[int]:
    """Return who waits for each other in a circle, each for the next and the last for the first; [] if nobody does.

    Args:
        follows: For whom each one waits; nobody waits for those who are no key of it.
    """
    finished: set[int] = set()
    for first in sorted(follows):
        path: list[int] = []
        where: dict[int, int] = {}
        # Depth first, with the way kept by hand: hundreds of ranks may wait in one line.
        stack = [(first, iter(follows[first]))] if first not in finished else []
        if stack:
            path.append(first)
            where[first] = 0
        while stack:
            rank, peers = stack[-1]
            peer = next((peer for peer in peers if peer not in finished and peer in follows), None)
            if peer is None:
                finished.add(rank)
                stack.pop()
                path.pop()
                where.pop(rank)
            elif peer in where:
                return path[where[peer] :]
            else:
                where[peer] = len(path)
                path.append(peer)
                stack.append((peer, iter(follows[peer])))
    return []


def _have(ranks: Collection[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _ranks(ranks: Collection[int]) -> str:
    """Return "rank 2", "ranks 0, 1 and 3"; of many the first eight."""
    if len(ranks) <= 8:
        return ranks_in_words(ranks)
    return f"ranks {', '.join(map(str, sorted(ranks)[:8]))} and {len(ranks) - 8} more"


def _spans(ranks: Collection[int]) -> str:
    """Return "0-299, 301-511"; of more than eight stretches the first eight."""
    stretches: list[list[int]] = []
    for rank in sorted(ranks):
        if stretches and rank == stretches[-1][1] + 1:
            stretches[-1][1] = rank
        else:
            stretches.append([rank, rank])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in stretches[:8]]
    return ", ".join(shown) + ("" if len(stretches) <= 8 else f", ... ({len(ranks)} in all)")
