"""Words that findings share."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.auditing.facts import Difference


def listed(items: Sequence[object], most: int = 4) -> str:
    """Return items as a sentence lists them: "0, 1 and 2", with a count where there are many."""
    words = [str(item) for item in items]
    if len(words) > most:
        if all(isinstance(item, int) for item in items) and list(items) == list(
            range(int(words[0]), int(words[-1]) + 1)
        ):
            return f"{words[0]} to {words[-1]}"
        return f"{', '.join(words[: most - 1])} and {len(words) - most + 1} more"
    return " and ".join(", ".join(words).rsplit(", ", 1))


def on_ranks(ranks: Sequence[int]) -> str:
    """Return "rank 1" or "ranks 0 and 1"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(ranks)}"


def share(part: int, whole: int) -> str:
    """Return "2 of 14"."""
    return f"{part} of {whole}"


def parted(name: str, apart: Difference) -> str:
    """Return where two ranks' values of a tensor part: "fc.weight[0, 3] is 0.5 on rank 0 and 0.25 on rank 1"."""
    one, other = apart.ranks
    place = f"[{', '.join(map(str, apart.index))}]" if apart.index else ""
    return (
        f"{name}{place} is {apart.values[0]:.9g} on rank {one} and {apart.values[1]:.9g} on rank {other} "
        f"({apart.count} of {apart.numel} elements differ, by {apart.largest:.3g} at most)"
    )
