"""What is left in the tensors where one phase of the two levels is missing, comes too early or takes another piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

Chunks = list[list[Tensor]]


def reduce_scatter(chunks: Chunks) -> None:
    """Go round once, as the lesson's loops do: chunks[p][c] is chunk c of the p-th rank; chunk c ends complete on c."""
    size = len(chunks)
    for step in range(size - 1):
        sent = [chunks[place][(place - step - 1) % size].clone() for place in range(size)]
        for place in range(size):
            chunks[place][(place - step - 2) % size] += sent[place - 1]


def all_gather(chunks: Chunks) -> None:
    """Go round once more: chunk c of rank c comes to all."""
    for place, mine in enumerate(chunks):
        for other, chunk in enumerate(mine):
            if other != place:
                chunk.copy_(chunks[other][other])


class Levels:
    """The tensors of all ranks, and the phases that change them."""

    def __init__(self, tensors: Sequence[Tensor], per_node: int) -> None:
        self.tensors = [each.clone() for each in tensors]
        self.per_node, self.world = per_node, len(tensors)
        self.pieces = [list(each.tensor_split(per_node)) for each in self.tensors]

    def inside(self, phase: Callable[[Chunks], None]) -> None:
        """Let every node go through a phase."""
        for first in range(0, self.world, self.per_node):
            phase(self.pieces[first : first + self.per_node])

    def between(self, phase: Callable[[Chunks], None], which: Callable[[int], int] | None = None) -> None:
        """Let the ranks of each place go through a phase with one of their pieces, that of their place if none is said.

        Args:
            phase: reduce_scatter or all_gather.
            which: Rank -> number of its piece.
        """
        nodes = self.world // self.per_node
        for local in range(self.per_node):
            ranks = range(local, self.world, self.per_node)
            phase([list(self.pieces[rank][which(rank) if which else local].tensor_split(nodes)) for rank in ranks])


def no_gather_inside(levels: Levels) -> None:
    """Leave out the last phase."""
    levels.inside(reduce_scatter)
    levels.between(reduce_scatter)
    levels.between(all_gather)


def no_gather_between(levels: Levels) -> None:
    """Leave out the all-gather between nodes."""
    levels.inside(reduce_scatter)
    levels.between(reduce_scatter)
    levels.inside(all_gather)


def between_first(levels: Levels) -> None:
    """Begin between the nodes, with numbers that were not added up inside them."""
    levels.between(reduce_scatter)
    levels.between(all_gather)
    levels.inside(reduce_scatter)
    levels.inside(all_gather)


def inside_too_early(levels: Levels) -> None:
    """Hand the pieces round inside the node before they have come from the other nodes."""
    levels.inside(reduce_scatter)
    levels.between(reduce_scatter)
    levels.inside(all_gather)
    levels.between(all_gather)


def piece_of_the_node(levels: Levels) -> None:
    """Take the piece that has the node's number, not the one that is complete on this rank."""

    def which(rank: int) -> int:
        return rank // levels.per_node % levels.per_node

    levels.inside(reduce_scatter)
    levels.between(reduce_scatter, which)
    levels.between(all_gather, which)
    levels.inside(all_gather)


def left_by(phases: Callable[[Levels], None], tensors: Sequence[Tensor], per_node: int) -> list[Tensor]:
    """Return what each rank's flat tensor holds after these phases; nothing where pieces of different sizes meet.

    Args:
        phases: Goes through them.
        tensors: Each rank's contribution, flat.
        per_node: Ranks in a node.
    """
    levels = Levels(tensors, per_node)
    try:
        phases(levels)
    except RuntimeError:  # torch refuses to add tensors of different sizes
        return []
    return levels.tensors
