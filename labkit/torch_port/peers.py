"""Ranks that a call names: whether the group has them.

torch asks this of groups that a program makes, and not of the default group. There gloo reads beyond its array for a
rank that does not exist, and takes -1 to mean "from anybody".
"""

from __future__ import annotations

from labkit.errors import NoSuchRank


def check_peer(call: str, rank: int, size: int) -> int:
    """Return the rank of a group that a call sends to, receives from or has for its root.

    Args:
        call: What was called, such as "isend to".
        rank: The rank it named.
        size: Ranks in the group.

    Raises:
        NoSuchRank: If the group has no such rank. It is a ValueError, as torch's for groups that a program made.
    """
    if 0 <= rank < size:
        return rank
    ranks = f"ranks 0 to {size - 1}" if size > 1 else "rank 0 alone"
    raise NoSuchRank(f"{call} rank {rank}: there is no such rank; the group has {ranks}")
