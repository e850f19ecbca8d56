"""What the trusted side of the `relay` backend knows of a rank: what it posted, what it waits for, how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field

ANY_SOURCE = -1


class RelayError(Exception):
    """A rank broke the protocol, a limit or the rules of communication; `text` is for the learner.

    Attributes:
        rank: The rank that did it.
        text: A sentence.
    """

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(f"rank {rank}: {text}")
        self.rank = rank
        self.text = text


@dataclass(frozen=True)
class Deadlock:
    """No rank can go on.

    Attributes:
        rank: The lowest rank that waits.
        text: One sentence.
        lines: For each rank, what it waits for.
    """

    rank: int
    text: str
    lines: tuple[str, ...]


@dataclass(eq=False)
class Post:
    """A send or a receive of a rank; `size` was announced, `came` are the bytes that arrived.

    `posted` says in reports that the call was isend or irecv. Nothing else rests on it: the rank itself claims it.
    """

    rank: int
    id: int
    kind: str
    peer: int
    tag: int
    group: str
    size: int
    dtype: str
    position: int
    match: Post | None = None
    data: bytes | None = None
    came: int | None = None
    pulled: bool = False
    delivered: bool = False
    where: str = ""
    posted: bool = False


@dataclass(eq=False)
class Part:
    """One rank's call of a collective; `sizes` are those of the parts that came, `size` what of them is held."""

    rank: int
    id: int
    name: str
    where: str
    announced: int = 0
    size: int = 0
    sizes: tuple[int, ...] | None = None
    contribution: list[bytes] | None = None
    given: bool = False
    waited: int | None = None
    aside: bool = False
    position: int = 0


@dataclass(eq=False)
class Collective:
    """A collective of a group; `number` is how many came before."""

    members: tuple[int, ...]
    number: int = 0
    parts: dict[int, Part] = field(default_factory=dict)


@dataclass(eq=False)
class RankState:
    """What is known of one rank."""

    posts: dict[int, Post] = field(default_factory=dict)
    parts: dict[int, tuple[Collective, Part]] = field(default_factory=dict)
    waits: dict[int, str] = field(default_factory=dict)
    tests: set[int] = field(default_factory=set)
    threads: int = 1
    ended: bool = False
    gone: str = ""
    position: int = 0
    last_id: int = -1
    pulls: int = 0

    @property
    def blocked(self) -> bool:
        """Return whether every thread of the rank waits, and none of its data is being read."""
        return bool(self.waits) and len(self.waits) >= self.threads and not self.pulls

    @property
    def idle(self) -> bool:
        """Return whether nothing more will come from the rank by itself."""
        return self.ended or bool(self.gone) or self.blocked
