"""The area under a rank's rows: the most it held in each column, and nothing where no memory was recorded."""

from __future__ import annotations

import numpy as np

from labkit.timeline import COMPUTE, Timeline
from labkit.timeline.memory import CATEGORIES
from labkit.widgets.layout import LEFT, NUM_COLUMNS, TOP, row_layout
from labkit.widgets.memory_rows import memory_columns
from labkit.widgets.static_timeline import to_png
from tests.widgets.still_pixels import on_ground


def _timeline(*, memory: bool = True) -> Timeline:
    rows = np.array([(0, 0, 100), (0, 20, 400), (0, 20, 0), (0, 60, 200), (1, 0, 50)]).T
    tables = {}
    if memory:
        kind = np.full(rows.shape[1], CATEGORIES.index("activations"), dtype=np.int8)
        peaks = {"rank": [0, 1], "time_ns": [20, 0], "bytes": [400, 50], "operator": ["mm", "mm"], "capacity": [1, 1]}
        tables["memory"] = {"rank": rows[0], "time_ns": rows[1], "category": kind, "bytes": rows[2]}
        tables["memory_peak"] = {name: np.array(values) for name, values in peaks.items()}
    return Timeline([0, 1], [COMPUTE] * 2, [0, 0], [100, 100], ["mm"] * 2, ["operator"] * 2, tables=tables)


def test_a_column_shows_the_most_that_was_held_in_it_and_what_was_there_before() -> None:
    assert memory_columns(_timeline(), 0, 10).tolist() == [100, 100, 400, 0, 0, 0, 200, 200, 200, 200]
    assert memory_columns(_timeline(), 1, 4).tolist() == [50, 50, 50, 50]


def test_the_area_is_painted_under_the_bars_to_one_scale_for_all_ranks() -> None:
    layout = row_layout(_timeline())
    image = on_ground(to_png(_timeline()))[:, :, 0]
    step = layout.rank_height + layout.rank_gap

    def grey(rank: int, share_of_time: float) -> int:
        base = TOP + rank * step + layout.rank_height
        column = LEFT + int(share_of_time * NUM_COLUMNS)
        return int((image[base - layout.memory_height + 1 : base, column] < 230).sum())

    assert grey(0, 0.2) > 0.8 * layout.memory_height  # the peak, 400
    assert 0.4 * layout.memory_height < grey(0, 0.8) < 0.7 * layout.memory_height
    assert grey(0, 0.4) == 0 and 0 < grey(1, 0.5) < grey(0, 0.1)


def test_an_arrow_leads_to_the_most_a_rank_held() -> None:
    layout, image = row_layout(_timeline()), on_ground(to_png(_timeline()))[:, :, 0]
    base = TOP + layout.rank_height
    black = (image[base - layout.memory_height + 1 : base, LEFT : LEFT + NUM_COLUMNS] < 190).sum(0)
    assert abs(int(black.argmax()) - 0.2 * NUM_COLUMNS) <= 1 and black.max() > 0.8 * layout.memory_height


def test_a_picture_without_memory_is_as_it_was() -> None:
    assert row_layout(_timeline(memory=False)).memory_height == 0 < row_layout(_timeline()).memory_height
