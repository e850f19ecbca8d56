"""A matrix cut by columns and by rows, on two ranks, with the numbers that each computes and what has to be added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.widgets.language import LIGHT, TINTS
from labkit.widgets.scene import GREY, INK, Line, Mark, Rect, Scene, Text, to_png

Numbers = npt.NDArray[np.int64]
COLOURS = TINTS[:2]
"""Of what rank 0 and rank 1 hold; each cell's rank is written beside it, too."""
_BOTH = LIGHT["ground"]
_CELL, _LEFT, _WIDTH, _HEIGHT = 34, 150, 760, 452
_TITLE = "Columns need no exchange; rows leave partial sums, which an all-reduce adds"

X: Numbers = np.array([[1, 2, 3, 4]])
A: Numbers = np.array([[1, 0, 2, 1], [0, 1, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]])


class MatrixCuts:
    """The picture; its numbers are those of x @ A.

    Attributes:
        by_columns: What rank 0 and rank 1 compute with half of the columns each.
        by_rows: Their partial sums with half of the rows each.
    """

    def __init__(self) -> None:
        """Multiply."""
        self.by_columns = [X @ half for half in np.hsplit(A, 2)]
        self.by_rows = [x @ half for x, half in zip(np.hsplit(X, 2), np.vsplit(A, 2), strict=True)]

    def __repr__(self) -> str:
        columns, rows = ([each[0].tolist() for each in found] for found in (self.by_columns, self.by_rows))
        return (
            f"MatrixCuts(x @ A = {(X @ A)[0].tolist()}: by columns {columns[0]} beside {columns[1]}, "
            f"by rows {rows[0]} plus {rows[1]})"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return the picture and its words; the numbers of both cuts are in both."""
        return {"image/png": self.to_png(), "text/plain": repr(self)}

    def to_png(self) -> bytes:
        """Return the picture."""
        return to_png(self.scene())

    def scene(self) -> Scene:
        """Return the picture as marks."""
        marks: list[Mark] = [Text(12, 26, _TITLE, 16, bold=True)]
        marks += self._columns(54) + self._rows(254)
        return Scene(_WIDTH, _HEIGHT, tuple(marks))

    def _columns(self, top: float) -> list[Mark]:
        owner = [[column // 2 for column in range(4)]]
        marks: list[Mark] = [Text(12, top + 22, "by columns", 13, bold=True)]
        marks += _grid(_LEFT, top + 56, X, [[None] * 4])
        marks += [Text(_LEFT, top + 50, "x, on both ranks", 11, fill=GREY)]
        marks += _grid(340, top + 6, A, owner * 4) + _equation(top + 78)
        marks += _grid(540, top + 56, X @ A, owner)
        marks += [Text(540, top + 50, "each has its columns", 11, fill=GREY)]
        for rank in range(2):
            marks.append(Text(340 + (2 * rank + 1) * _CELL, top + 162, f"rank {rank}", 13, "middle"))
            marks.append(Text(540 + (2 * rank + 1) * _CELL, top + 112, f"rank {rank}", 13, "middle"))
        return marks

    def _rows(self, top: float) -> list[Mark]:
        marks: list[Mark] = [Line(((12, top - 14), (_WIDTH - 12, top - 14)), LIGHT["line"])]
        marks += [Text(12, top + 22, "by rows", 13, bold=True)]
        marks += _grid(_LEFT, top + 56, X, [[column // 2 for column in range(4)]])
        marks += [Text(_LEFT, top + 50, "each has its part of x", 11, fill=GREY)]
        marks += _grid(340, top + 6, A, [[row // 2] * 4 for row in range(4)]) + _equation(top + 78)
        for rank in range(2):
            marks.append(Text(_LEFT + (2 * rank + 1) * _CELL, top + 112, f"rank {rank}", 13, "middle"))
            marks.append(Text(340 - 8, top + 6 + (2 * rank + 1) * _CELL + 4, f"rank {rank}", 13, "end"))
            marks += _grid(540, top + 6 + 62 * rank, self.by_rows[rank], [[rank] * 4])
            marks.append(Text(684, top + 28 + 62 * rank, f"rank {rank}", 13))
        marks.append(Text(540 + 2 * _CELL, top + 60, "+", 16, "middle", bold=True))
        marks.append(Text(540 + 2 * _CELL, top + 122, "=", 16, "middle", bold=True))
        marks += _grid(540, top + 130, X @ A, [[None] * 4])
        return [*marks, Text(684, top + 152, "both", 13)]


def _grid(left: float, top: float, numbers: Numbers, owner: Sequence[Sequence[int | None]]) -> list[Mark]:
    """Return a matrix's cells in the colour of the rank that holds each; None is both."""
    marks: list[Mark] = []
    for (row, column), number in np.ndenumerate(numbers):
        rank = owner[row][column]
        x, y = left + column * _CELL, top + row * _CELL
        marks.append(Rect(x, y, _CELL, _CELL, _BOTH if rank is None else COLOURS[rank], INK, 0.8))
        marks.append(Text(x + _CELL / 2, y + _CELL / 2 + 5, str(number), 13, "middle"))
    return marks


def _equation(y: float) -> list[Mark]:
    return [Text(300, y, "@", 16, bold=True), Text(500, y, "=", 16, bold=True)]


def matrix_cuts() -> MatrixCuts:
    """Return a picture of a matrix cut by columns and by rows, on two ranks."""
    return MatrixCuts()
