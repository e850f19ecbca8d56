"""A mesh of ranks whose axes light up: each rank belongs to one group along each axis."""

from __future__ import annotations

from labkit.widgets.figures.sizes import within
from labkit.widgets.language import letter, tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words

_TOP, _ROW, _LEFT = 46, 66, 120


def device_mesh(data: int = 2, tensor: int = 4) -> Story:
    """Return the figure of a mesh with an axis of copies and an axis of cut matrices.

    Args:
        data: Copies of the model, 2 to 4: rows.
        tensor: Ranks that share one copy, 2 to 6: columns.
    """
    within("data", data, 2, 4)
    within("tensor", tensor, 2, 6)
    wide = (WIDTH - _LEFT - 20) / tensor
    height = _TOP + data * _ROW + 12

    def ranks(group_of: str = "", moved: int = 0) -> list[Shape]:
        shapes: list[Shape] = [
            Words(_LEFT, 20, f"axis tensor: {tensor} ranks share one copy", bold=group_of == "tensor"),
            Words(8, _TOP + 20, "axis data:", bold=group_of == "data"),
            Words(8, _TOP + 38, f"{data} copies", bold=group_of == "data"),
        ]
        for row in range(data):
            for column in range(tensor):
                x, y = _LEFT + column * wide, _TOP + row * _ROW
                group = {"tensor": row, "data": column}.get(group_of)
                fill = "none" if group is None else tint(group)
                shapes.append(Box("", x, y, wide - 14, _ROW - 16, fill))
                shapes.append(
                    Words(x + 8, y + 18, f"rank {row * tensor + column}", fill="#000000" if group_of else "ink")
                )
        for row in range(data):
            for column in range(tensor):
                there = (row, (column + moved) % tensor) if group_of == "tensor" else ((row + moved) % data, column)
                here = there if group_of else (row, column)
                x, y = _LEFT + here[1] * wide, _TOP + here[0] * _ROW
                words = letter(column)
                shapes.append(Box(f"t{row}.{column}", x + wide - 46, y + 24, 26, 20, "ground", words))
        return shapes

    def along(axis: str) -> list[Shape]:
        paths: list[Shape] = []
        if axis == "tensor":
            for row in range(data):
                y = _TOP + row * _ROW + _ROW - 9
                paths.append(Path(((_LEFT, y), (_LEFT + tensor * wide - 14, y)), "collective", 3))
        else:
            for column in range(tensor):
                x = _LEFT + column * wide + wide - 7
                paths.append(Path(((x, _TOP), (x, _TOP + data * _ROW - 16)), "collective", 3))
        return paths

    one = tensor + 1
    pair = f"rank {one} calls along tensor with ranks {tensor}-{2 * tensor - 1}"
    others = ", ".join(str(row * tensor + 1) for row in range(data))
    frames = [
        Frame(f"{data * tensor} ranks in {data} rows of {tensor}; each holds a piece, A to {letter(tensor - 1)}.",
              tuple(ranks())),
        Frame(f"Along tensor: each row is one group, all pieces of one copy; {data} all-reduces run at a time.",
              (*ranks("tensor"), *along("tensor"))),
        Frame("What travels stays in its row: partial sums, in every layer. That axis wants the fast links.",
              (*ranks("tensor", 1), *along("tensor"))),
        Frame(f"Along data: each column is one group, one piece in every copy; {tensor} all-reduces run at a time.",
              (*ranks("data"), *along("data"))),
        Frame("What travels stays in its column: gradients, once a step.", (*ranks("data", 1), *along("data"))),
        Frame(f"So {pair}, along data with ranks {others}.", tuple(ranks())),
    ]  # fmt: skip
    title = f"{data * tensor} ranks: each is in one of {data} groups along tensor and one of {tensor} along data"
    return Story(title, frames, height, {"ranks": data * tensor, "groups": data + tensor}, telling=1)
