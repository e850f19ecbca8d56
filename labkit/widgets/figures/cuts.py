"""A matrix cut by columns and by rows: what each GPU multiplies, and what is left to add."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from labkit.errors import ConfigError
from labkit.widgets.language import tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Shape, Story, Words

Numbers = npt.NDArray[np.int64]

X: Numbers = np.array([1, 2, 3, 4])
A: Numbers = np.array([[1, 0, 2, 1], [0, 1, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]])
_SIZE, _CELL, _HEIGHT = 4, 28, 326
_WHOLE_Y, _X_Y, _A_Y, _OUT_Y = 22, 74, 126, 266


def matrix_cut(num_gpus: int = 2) -> Story:
    """Return the figure of x @ A on several GPUs: A cut by columns, then by rows.

    Args:
        num_gpus: 2 or 4.
    """
    if num_gpus not in (2, 4):
        raise ConfigError(f"num_gpus={num_gpus} was asked for; the figure cuts four columns for 2 or 4.")
    cut = _Cut(num_gpus)
    result, every = cut.result, [range(_SIZE)] * num_gpus
    by_columns = (_named("by columns"), *cut.panels(), *cut.copies(every), *cut.parts(by_columns=True))
    by_rows = (_named("by rows"), *cut.panels(), *cut.copies(cut.mine), *cut.parts(by_columns=False))
    frames = [
        Frame(f"One product, x @ A, and {num_gpus} GPUs to compute it.", (*cut.whole(),)),
        Frame("By columns: each GPU gets some columns of A, and all of x.", by_columns),
        Frame("Each has its columns of the result. Nothing has to travel.",
              (*by_columns, *cut.columns_out(together=False))),
        Frame("Beside each other they are x @ A; there is nothing to add.",
              (*by_columns, *cut.columns_out(together=True))),
        Frame("By rows: each GPU gets some rows of A, and of x only the numbers that meet them.", by_rows),
        Frame("Each has a partial sum of the whole result: as long as x @ A, and wrong alone.",
              (*by_rows, *cut.sums(together=False))),
        Frame("An all-reduce adds the partial sums.", (*by_rows, *cut.sums(together=True))),
        Frame("Now every GPU has x @ A.", (*by_rows, *cut.everywhere())),
    ]  # fmt: skip
    numbers = {
        "x @ A": _written(result),
        "by columns": " beside ".join(_written([result[c] for c in own]) for own in cut.mine),
        "by rows": " + ".join(map(_written, cut.partial)),
    }
    title = "Columns need no exchange; rows leave partial sums to add up"
    return Story(title, frames, _HEIGHT, numbers, telling=5)


class _Cut:
    """The product on several GPUs, and the shapes of each of its states."""

    def __init__(self, num_gpus: int) -> None:
        self.gpus, self.each = range(num_gpus), _SIZE // num_gpus
        self.mine = [list(range(gpu * self.each, (gpu + 1) * self.each)) for gpu in self.gpus]
        self.result: list[int] = (X @ A).tolist()
        self.partial: list[list[int]] = [(X[own] @ A[own]).tolist() for own in self.mine]
        self.pitch = WIDTH / num_gpus
        self.middle = [self.pitch * gpu + self.pitch / 2 for gpu in self.gpus]

    def panels(self) -> list[Shape]:
        boxes: list[Shape] = []
        for gpu in self.gpus:
            boxes.append(Box("", self.pitch * gpu + 4, 62, self.pitch - 8, _HEIGHT - 66, edge="line"))
            boxes.append(Words(self.pitch * gpu + 12, _HEIGHT - 14, f"GPU {gpu}", bold=True))
        return boxes

    def copies(self, owned: Iterable[Iterable[int]]) -> list[Shape]:
        """Return x, or its part, on each GPU."""
        boxes: list[Shape] = []
        for gpu, columns in enumerate(owned):
            left = self.middle[gpu] - len(list(columns)) * _CELL / 2
            boxes.append(Words(left - 8, _X_Y + 19, "x", anchor="end"))
            boxes += [_cell(f"x{c}.{gpu}", left + k * _CELL, _X_Y, X[c], "ground") for k, c in enumerate(columns)]
        return boxes

    def parts(self, by_columns: bool) -> list[Shape]:
        boxes: list[Shape] = []
        for gpu, own in enumerate(self.mine):
            wide = self.each if by_columns else _SIZE
            left = self.middle[gpu] - wide * _CELL / 2
            boxes.append(Words(left - 8, _A_Y + 19, "A", anchor="end"))
            for k, line in enumerate(own):
                for other in range(_SIZE):
                    r, c = (other, line) if by_columns else (line, other)
                    across, down = (k, other) if by_columns else (other, k)
                    boxes.append(_cell(f"a{r}{c}", left + across * _CELL, _A_Y + down * _CELL, A[r, c], tint(gpu)))
        return boxes

    def whole(self) -> list[Shape]:
        left = WIDTH / 2 - 8
        cells: list[Shape] = [
            Words(left - 8 - 5 * _CELL, _X_Y + 47, "x", anchor="end"),
            Words(left - 20, _X_Y + 47, "@"),
        ]
        for gpu in self.gpus:
            cells += [_cell(f"x{c}.{gpu}", left - (5 - c) * _CELL - 4, _X_Y + 28, X[c], "ground") for c in range(_SIZE)]
        for r, c in np.ndindex(A.shape):
            cells.append(_cell(f"a{r}{c}", left + c * _CELL, _X_Y - 14 + r * _CELL, int(A[r, c]), "ground"))
        return [*cells, Words(left + _SIZE * _CELL + 10, _X_Y + 47, "A")]

    def columns_out(self, together: bool) -> list[Shape]:
        boxes: list[Shape] = []
        for gpu, own in enumerate(self.mine):
            apart = self.middle[gpu] - self.each * _CELL / 2
            left = WIDTH / 2 - 2 * _CELL + own[0] * _CELL if together else apart
            y = _WHOLE_Y if together else _OUT_Y
            boxes += [_cell(f"y{c}", left + k * _CELL, y, self.result[c], tint(gpu)) for k, c in enumerate(own)]
        return [*boxes, *([] if together else self._above("part of x @ A"))]

    def sums(self, together: bool) -> list[Shape]:
        """Return the partial sums, one under the other's place where they meet."""
        boxes: list[Shape] = []
        for gpu in self.gpus:
            left = self.middle[gpu] - 2 * _CELL
            y: float = _OUT_Y
            if together:
                left, y = WIDTH / 2 + (gpu - (len(self.gpus) - 1) / 2) * (_SIZE * _CELL + 26) - 2 * _CELL, _WHOLE_Y
                boxes += [Words(left - 17, y + 19, "+")] if gpu else []
            boxes += [_cell(f"p{c}.{gpu}", left + c * _CELL, y, self.partial[gpu][c], tint(gpu)) for c in range(_SIZE)]
        return [*boxes, *([] if together else self._above("partial sum"))]

    def everywhere(self) -> list[Shape]:
        return self._above("x @ A") + [
            _cell(f"p{c}.{gpu}", self.middle[gpu] - 2 * _CELL + c * _CELL, _OUT_Y, self.result[c], "collective")
            for gpu in self.gpus
            for c in range(_SIZE)
        ]

    def _above(self, words: str) -> list[Shape]:
        return [Words(place, _OUT_Y - 7, words, anchor="middle") for place in self.middle]


def _named(words: str) -> Shape:
    return Words(8, _WHOLE_Y + 19, words, bold=True)


def _cell(key: str, x: float, y: float, number: int, fill: str) -> Box:
    return Box(key, x, y, _CELL, _CELL, fill, str(number))


def _written(numbers: Iterable[int]) -> str:
    return f"[{', '.join(map(str, numbers))}]"
