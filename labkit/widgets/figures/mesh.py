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

    one = min(tensor + 1, 2 * tensor - 1)  # the rank that the last frame follows: of the second row

    def group(rank: int, axis: str) -> int | None:
        """Return the group along an axis that a rank is painted as, None for no colour."""
        row, column = divmod(rank, tensor)
        if axis == "both":
            return 0 if row == one // tensor else 3 if column == one % tensor else None
        return {"tensor": row, "data": column}.get(axis)

    def ranks(group_of: str = "", moved: int = 0) -> list[Shape]:
        shapes: list[Shape] = [
            Words(_LEFT, 20, f"axis tensor: {tensor} ranks share one copy", bold=group_of in ("tensor", "both")),
            Words(8, _TOP + 20, "axis data:", bold=group_of in ("data", "both")),
            Words(8, _TOP + 38, f"{data} copies", bold=group_of in ("data", "both")),
        ]
        for row in range(data):
            for column in range(tensor):
                x, y = _LEFT + column * wide, _TOP + row * _ROW
                number = row * tensor + column
                mine = group(number, group_of)
                fill = "none" if mine is None else tint(mine)
                shapes.append(Box("", x, y, wide - 14, _ROW - 16, fill))
                if group_of == "both" and number == one:  # of both groups, half and half
                    shapes.append(Box("", x + (wide - 14) / 2, y, (wide - 14) / 2, _ROW - 16, tint(3), edge="none"))
                    shapes.append(Box("", x, y, wide - 14, _ROW - 16))
                shapes.append(Words(x + 8, y + 18, f"rank {number}", fill="ink" if mine is None else "#000000"))
                shapes.append(Box("", x + wide - 46, y + 24, 26, 20, "ground", letter(column)))
        for row in range(data if group_of in ("tensor", "data") else 0):
            for column in range(tensor):
                along = group_of == "tensor"
                at = (row, (column + moved) % tensor) if along else ((row + moved) % data, column)
                x, y = _LEFT + at[1] * wide, _TOP + at[0] * _ROW
                words = ("sum" if wide > 90 else "") if along else ("grad" if wide > 90 else "")
                shapes.append(Box(f"t{row}.{column}", x + 6, y + 24, 38 if words else 14, 20, "collective", words))
        return shapes

    def along(axis: str, one_group: bool = False) -> list[Shape]:
        """Return a line along each group of an axis, or along the one that the last frame follows."""
        paths: list[Shape] = []
        if axis == "tensor":
            for row in [one // tensor] if one_group else range(data):
                y = _TOP + row * _ROW + _ROW - 9
                paths.append(Path(((_LEFT, y), (_LEFT + tensor * wide - 14, y)), "collective", 3))
        else:
            for column in [one % tensor] if one_group else range(tensor):
                x = _LEFT + column * wide + wide - 7
                paths.append(Path(((x, _TOP), (x, _TOP + data * _ROW - 16)), "collective", 3))
        return paths

    copy = f"its row, ranks {tensor}-{2 * tensor - 1}"
    piece = f"its column, ranks {', '.join(str(row * tensor + one % tensor) for row in range(data))}"
    frames = [
        Frame(f"{data * tensor} ranks hold {data} copies of a model, each cut into pieces A to {letter(tensor - 1)}.",
              tuple(ranks())),
        Frame(f"Along tensor: each row is one group, all pieces of one copy; {data} all-reduces run at a time.",
              (*ranks("tensor"), *along("tensor"))),
        Frame("What travels stays in its row: partial sums, in every layer. That axis wants the fast links.",
              (*ranks("tensor", 1), *along("tensor"))),
        Frame(f"Along data: each column is one group, one piece in every copy; {tensor} all-reduces run at a time.",
              (*ranks("data"), *along("data"))),
        Frame("What travels stays in its column: gradients, once a step.", (*ranks("data", 1), *along("data"))),
        Frame(f"So rank {one} is in two groups: {copy}, and {piece}.",
              (*ranks("both"), *along("tensor", one_group=True), *along("data", one_group=True))),
    ]  # fmt: skip
    title = f"Each rank is in two groups: {tensor} that share a copy, {data} that hold the same piece"
    numbers = {"ranks": data * tensor, "groups along tensor": data, "groups along data": tensor}
    return Story(title, frames, height, numbers, telling=len(frames) - 1)
