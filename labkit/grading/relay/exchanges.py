"""What a collective is, judged by what its members gave: its kind is a rank's word, its bytes are those that came.

Every collective of the `relay` backend is one exchange, in which each member gives one part for everybody or a part for
each member. What each kind's parts must look like leaves no room for another: who says ``barrier`` can pass nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Sizes = tuple[int, ...]
"""Bytes of the parts one member gave: one for everybody, or one for each member."""

KINDS = frozenset({
    "all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all", "barrier",
})  # fmt: skip


def problem(kind: str, ranks: Sequence[int], given: Sequence[Sizes]) -> tuple[int, str] | None:
    """Return the rank to blame and what is wrong, in words, or None where the parts are those of such a collective.

    Args:
        kind: What all members called it.
        ranks: The members' global ranks.
        given: What each of them gave, in the same order.
    """
    count = len(ranks)
    for rank, sizes in zip(ranks, given, strict=True):
        if len(sizes) not in _COUNTS[kind](count):
            return rank, f"rank {rank} gave {len(sizes)} parts to {kind} of {count} ranks."
    if kind == "barrier":
        loud = [rank for rank, sizes in zip(ranks, given, strict=True) if sum(sizes)]
        return (loud[0], f"rank {loud[0]} passed bytes through a barrier, which carries none.") if loud else None
    if kind in ("broadcast", "scatter"):
        givers = [rank for rank, sizes in zip(ranks, given, strict=True) if sum(sizes)]
        return (givers[1], f"ranks {givers[0]} and {givers[1]} each gave to {kind}.") if len(givers) > 1 else None
    if kind == "gather":
        roots = {place for sizes in given for place, size in enumerate(sizes) if size}
        return (ranks[0], "the ranks name several roots of gather; all must name the same.") if len(roots) > 1 else None
    if kind in ("all_reduce", "reduce", "reduce_scatter"):
        for rank, sizes in zip(ranks, given, strict=True):
            if sizes != given[0]:
                there, here = sum(given[0]), sum(sizes)
                words = f"rank {ranks[0]} gave {there} bytes to {kind} and rank {rank} gave {here}"
                return rank, f"{words}: all must give as much."
    return None


def counted(kind: str, place: int, given: Sequence[Sizes | None]) -> int:
    """Return the bytes of one member's call: what it gave, or where a root alone gives, what it was given.

    Args:
        kind: The collective's.
        place: Of the member in the group.
        given: What each member gave; None where nothing came.
    """
    if kind == "broadcast":
        return max((sum(sizes) for sizes in given if sizes), default=0)
    if kind == "scatter":
        return max((sizes[place] for sizes in given if sizes and len(sizes) == len(given)), default=0)
    return sum(given[place] or ())


_COUNTS: Mapping[str, Callable[[int], tuple[int, ...]]] = {
    **dict.fromkeys(("all_reduce", "reduce", "broadcast", "all_gather", "barrier"), lambda count: (1,)),
    **dict.fromkeys(("gather", "reduce_scatter", "all_to_all"), lambda count: (count,)),
    "scatter": lambda count: (1, count),
}
"""How many parts a member of a group of that size may give."""
