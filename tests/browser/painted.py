"""What a timeline in a page has painted, and what Python makes of the columns that the page was sent."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from labkit.timeline import COMMUNICATION, COMPUTE, REGION, Timeline, metrics
from labkit.timeline.transfers import moving
from labkit.widgets.palette import BLOCKED
from labkit.widgets.pixel_shares import share_matrix, snap_edges

LEFT, RIGHT = 124, 54
READ = """(root) => {
  const view = root.labkit, { state, canvas } = view;
  if (state.arrows) view.press("a");
  view.press("Home");
  const pen = CanvasRenderingContext2D.prototype, write = pen.fillText;
  pen.fillText = () => {};
  view.draw();
  pen.fillText = write;
  const columns = Math.round((state.right - 124) * state.ratio), x = Math.round(124 * state.ratio);
  const context = canvas.getContext("2d");
  const ground = [1, 3, 5].map((at) => parseInt(state.theme.band.slice(at, at + 2), 16));
  const line = (y) => {
    const { data } = context.getImageData(x, Math.round(y * state.ratio), columns, 1);
    let text = "";
    const differs = (c) => [0, 1, 2].some((i) => Math.abs(data[4 * c + i] - ground[i]) > 30);
    for (let c = 0; c < columns; c++) text += differs(c) ? "1" : "0";
    return text;
  };
  const rows = state.layout.rows.map(({ run, row, y, bar }) => ({
    run, bar, rank: row.rank, lane: row.lane, first: row.first, last: row.last,
    top: line(y + 1), bottom: line(y + bar - 2),
    isSplit: !state.layout.bars.some((place) => place.row === row),
  }));
  const packed = view.packed.map(({ columns, ...rest }) => {
    const bytes = new Uint8Array(columns.buffer ?? columns, columns.byteOffset ?? 0, columns.byteLength);
    let text = "";
    for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
    return { ...rest, path: null, columns: btoa(text) };
  });
  view.press("a");
  return JSON.stringify({ rows, packed, view: state.view, offset: state.offset, numbers: view.root.dataset.numbers });
}"""


@dataclass(frozen=True)
class Columns:
    """One run as the page was sent it.

    Attributes:
        timeline: The events, in the page's order.
        category: Of each event.
        num_categories: How many there are.
        still: When each rank stood still, begins and ends.
    """

    timeline: Timeline
    category: npt.NDArray[np.int64]
    num_categories: int
    still: dict[int, tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]


def unpacked(packed: dict[str, Any]) -> Columns:
    """Return the columns of one run, read as labkit.widgets.timeline_columns says they are written."""
    data = base64.b64decode(packed["columns"])
    column = {
        name: np.frombuffer(data, f"<{kind}", length, offset)
        for name, (kind, offset, length) in packed["layout"].items()
    }
    labels = [packed["labels"][code] for code in column["label"].tolist()]
    counts = [count for *_, count in packed["rows"]]
    start = column["start"].astype(np.int64)
    timeline = Timeline(
        rank=np.repeat([rank for rank, *_ in packed["rows"]], counts),
        lane=np.repeat([lane for _, lane, _ in packed["rows"]], counts),
        start_ns=start,
        end_ns=start + column["duration"].astype(np.int64),
        name=[label[0] for label in labels],
        kind=[label[1] for label in labels],
        bytes=column["bytes"].astype(np.int64),
        peer=[label[3] for label in labels],
        tables={
            "transfer": {
                "span": column["cut_event"].astype(np.int64),
                "start_ns": column["cut_start"].astype(np.int64),
                "end_ns": column["cut_end"].astype(np.int64),
                "err_ns": np.zeros(len(column["cut_event"]), dtype=np.int64),
            }
        },
    )
    category = np.array([label[2] for label in labels], dtype=np.int64)
    still, at = {}, 0
    for rank, count in packed["blocked"]:
        part = slice(at, at + count)
        still[rank] = column["blocked_start"][part].astype(np.int64), column["blocked_end"][part].astype(np.int64)
        at += count
    return Columns(timeline, category, len(packed["categories"]), still)


def _bars(row: dict[str, Any], run: Columns) -> tuple[npt.NDArray[np.int64], ...]:
    """Return begins, ends and categories of what a row shows."""
    mine = slice(row["first"], row["last"])
    if row["lane"] != COMMUNICATION:
        return run.timeline.start_ns[mine], run.timeline.end_ns[mine], run.category[mine]
    calls = moving(run.timeline)
    here = (calls.row >= row["first"]) & (calls.row < row["last"])
    start, end = run.still[row["rank"]]
    still = np.full(len(start), BLOCKED, dtype=np.int64)
    parts = (calls.start_ns[here], start), (calls.end_ns[here], end), (run.category[calls.row[here]], still)
    begins, ends, categories = (np.concatenate(part) for part in parts)
    order = np.argsort(begins, kind="stable")
    return begins[order], ends[order], categories[order]


def check(root: Any) -> int:
    """Assert that a timeline has painted the shares of its columns, row by row, and says their numbers.

    Args:
        root: Playwright's handle of a ``.labkit-timeline``.

    Returns:
        How many rows were compared.
    """
    read = json.loads(root.evaluate(READ))
    runs = [unpacked(packed) for packed in read["packed"]]
    for row in read["rows"]:
        _check_row(row, runs[row["run"]], read)
    _check_numbers(json.loads(read["numbers"]), runs[0], read["packed"][0].get("measured"))
    return len(read["rows"])


def _check_row(row: dict[str, Any], run: Columns, read: dict[str, Any]) -> None:
    """Compare a row's highest and lowest lines of pixels with the share of each pixel's time that is filled."""
    if row["lane"] == REGION:
        return
    shift = read["offset"] if row["run"] else 0
    window = (round(read["view"][0] - shift), round(read["view"][1] - shift))
    shares = snap_edges(share_matrix(*_bars(row, run), run.num_categories, window, len(row["top"])))
    filled, pixel = shares.sum(axis=0), 1 / row["bar"]
    until = len(filled)
    if len(read["packed"]) > 1:  # beside a run that has ended one of its steps may stand, enlarged
        ends = (int(run.timeline.end_ns.max()) - window[0]) / (window[1] - window[0])
        until = min(until, math.floor(ends * until))
    lines = (("top", 1 - pixel), ("bottom", 2 * pixel))
    if row["isSplit"]:  # what comes over what goes: one of them is painted
        row = row | {"either": "".join(map(max, row["top"], row["bottom"]))}
        lines = (("either", 0.5),)
    for line, needed in lines:
        sure = np.abs(filled - needed) > 1.5 * pixel  # a column that ends within this line of pixels is half painted
        sure &= shares[BLOCKED] == 0  # hatched: a line of pixels meets it here and there
        painted = np.array(list(row[line])) == "1"
        wrong = float((painted != (filled > needed))[:until][sure[:until]].sum()) / len(filled)
        where = f"rank {row['rank']}, lane {row['lane']}, {line} line"
        # Ticks and whiskers of the clock stand over the bars.
        assert wrong < 0.04, f"{where}: {wrong:.1%} of {len(filled)} columns are not as Python says"


def _check_numbers(said: dict[str, Any], run: Columns, measured: list[int] | None) -> None:
    timeline = run.timeline
    ranks = np.unique(timeline.rank)
    begin, end = measured or (0, max(int(timeline.end_ns.max()), 1))  # a name makes no run longer
    span = end - begin
    busy, computing = (metrics.busy_ns(timeline, lanes)[ranks] / span for lanes in ((0, 1), (COMPUTE,)))
    communication = metrics.busy_ns(timeline, (1,))[ranks].sum()
    hidden = metrics.hidden_communication_share(timeline)
    assert said["window"] == pytest.approx(span)
    assert said["busyShare"] == pytest.approx(busy.mean(), abs=1e-9)
    still = sum(int((end - start).sum()) for start, end in run.still.values())
    assert said["blockedShare"] == pytest.approx(still / span / len(ranks), abs=1e-9)
    if (timeline.lane == COMPUTE).any():
        assert said["computeShare"] == pytest.approx(computing.mean(), abs=1e-9)
        assert said["bubble"] == pytest.approx(1 - computing.mean(), abs=1e-9)
    assert said["communication"] == pytest.approx(communication, abs=1)
    assert said["exposed"] == pytest.approx(communication * (1 - hidden), rel=1e-6, abs=2)
    assert said["sent"] == (metrics.bytes_sent(timeline) + metrics.remote_call_bytes(timeline)).sum()
    assert said["payload"] == metrics.collective_payload_bytes(timeline).sum()
