"""Every view in every state, light and dark, 400, 700 and 1440 pixels wide: a sheet for each state, all on one page.

For people to look at: ``make looks``, or ``python -m tests.browser.gallery FOLDER [NAME...]``. A sheet has light beside
dark, narrow above wide; a line is printed for each thing that lies outside its view. The folder's index.html shows all
sheets at once.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image

import labkit
from labkit.checks.ring_player import ring_player
from labkit.doctor import find_browser
from labkit.timeline.timeline import Timeline
from labkit.widgets.bucket_explorer import bucket_explorer
from labkit.widgets.compression_explorer import compression_explorer
from labkit.widgets.explorer import Explorer
from labkit.widgets.figures import _MAKERS as FIGURES
from labkit.widgets.schedule_explorer import schedule_explorer
from labkit.widgets.sharding_player import sharding_player
from labkit.widgets.staleness_view import staleness_view
from labkit.widgets.timeline_columns import for_page
from labkit.widgets.timeline_page import view
from tests.browser.figure_pages import ILLEGAL, PAGE, set_slider
from tests.widgets import known_messages as messages
from tests.widgets import known_steps as steps
from tests.widgets import ring_programs
from tests.widgets.known_runs import Known, timeline_of

GROUND = "#808080"
WIDTHS, THEMES = (400, 700, 1440), ("light", "dark")
_KNOWN = (
    Known("late", steps.one_late, 4),
    Known("late", steps.late_with_buckets, 4),
    Known("pipeline", messages.one_forward_one_backward, 4),
    Known("deadlock", messages.two_wait_for_each_other, 4),
)
GAP = [(0, 0, 0, 0), (1, 1, 0, 1), (4, 0, 1, 4), (5, 2, 1, 5)]
Do = tuple[Any, ...]
"""Keys to press in the picture, or (slider, position)."""


def trained() -> None:
    """Two steps with memory, messages and a collective, on ranks that are not equally fast."""
    for step in range(2):
        with labkit.span("forward"):
            value = torch.zeros(400, 400) @ torch.zeros(400, 400 * (1 + dist.get_rank() % 2))
        with labkit.span("backward"):
            value = value @ value.T
        peer = dist.get_rank() ^ 1
        for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, value, peer), dist.P2POp(dist.irecv, torch.empty_like(value), peer)]
        ):
            work.wait()
        dist.all_reduce(value)
        with labkit.span(f"optimizer {step}"):
            value += 1


def _many(num_ranks: int, num_events: int) -> Timeline:
    random = np.random.default_rng(0)
    rank = np.repeat(np.arange(num_ranks), num_events)
    length = random.lognormal(10, 1, len(rank)).astype(np.int64)
    start = np.concatenate([np.cumsum(part) for part in np.split(length, num_ranks)]) - length
    kinds = np.array(["span", "all_reduce", "wait"])[random.integers(0, 3, len(rank))]
    lane = np.where(kinds == "span", 0, np.where(kinds == "wait", 2, 1))
    same = [0] * len(rank)
    return Timeline(
        rank=rank, lane=lane, start_ns=start, end_ns=start + length // 2, name=kinds.tolist(), kind=kinds.tolist(),
        bytes=same, peer=[-1] * len(rank), flow=[-1] * len(rank),
    )  # fmt: skip


def timelines(*runs: Timeline, names: tuple[str, ...] = ("",), overlay: bool = False) -> str:
    """Return the body of a page with these runs."""
    beside = len(runs) > 1
    pairs = zip(runs, names, strict=True)
    return view([for_page(run, name, is_beside=beside) | {"overlay": overlay} for run, name in pairs])


def states() -> dict[str, tuple[Callable[[], Explorer | str], tuple[Do | str, ...]]]:
    """Return of each state how its view is made and what is then done with it."""
    here = labkit.run(trained, on=labkit.virtual(4)).timeline
    slower = labkit.run(trained, on=labkit.virtual(4, gpu="a100")).timeline
    one = lambda: timelines(here)  # noqa: E731
    below = lambda: timelines(here, slower, names=("H100", "A100"))  # noqa: E731
    outline = lambda: timelines(here, slower, names=("H100", "A100"), overlay=True)  # noqa: E731
    wrong = ring_programs.sends_the_next_chunk_on_rank_2
    plain: tuple[Do | str, ...] = ()
    return {
        "timeline": (one, plain),
        "timeline-marks": (one, ("c", "ArrowRight", "]", "+")),
        "timeline-tables": (one, ("t", "?")),
        "timeline-many": (lambda: timelines(_many(64, 40)), plain),
        "timeline-100k": (lambda: timelines(_many(8, 12_500)), ("c",)),
        **{f"timeline-{known.name}": (partial(timelines, timeline_of(known, 0)), plain) for known in _KNOWN},
        "timeline-empty": (lambda: timelines(here.spans(rank=99)), plain),
        "compare-below": (below, ("c", "ArrowRight")),
        "compare-outline": (outline, plain),
        "ring": (lambda: ring_player(num_ranks=4), ("End",)),
        "ring-middle": (lambda: ring_player(num_ranks=4), ("Home", "ArrowRight", "ArrowRight", "ArrowRight")),
        "ring-16": (lambda: ring_player(num_ranks=16), ("ArrowRight",)),
        "ring-2-pieces": (lambda: ring_player(num_ranks=2, num_chunks=16), ("ArrowRight", "t", "?")),
        "ring-wrong": (lambda: ring_player(wrong, on=labkit.virtual(4)), ("End",)),
        "bucket": (bucket_explorer, plain),
        "bucket-hook": (lambda: bucket_explorer(skew_s=2e-3, hook="fp16", compare=(1, 25, math.inf)), ("End",)),
        "bucket-small": (lambda: bucket_explorer([2**18] * 40, cap_mb=0.25), ("ArrowRight", "t", "?")),
        "schedule": (schedule_explorer, plain),
        "schedule-big": (
            lambda: schedule_explorer(num_stages=16, num_microbatches=64, memory_limit=4),
            ("ArrowRight",),
        ),
        "schedule-illegal": (lambda: schedule_explorer(ILLEGAL, num_stages=2, num_microbatches=2), (".", "c", "?")),
        "schedule-forms": (schedule_explorer, (("p", 1), ("m", 2), ("and", 1), "t")),
        "staleness": (staleness_view, plain),
        "staleness-bound": (lambda: staleness_view(bound=2, straggler=6, drop=4), ("Home", "ArrowRight")),
        "staleness-8": (lambda: staleness_view(num_workers=8, law="exponential", divided="nothing"), ("End", "t", "?")),
        "staleness-gap": (lambda: staleness_view(GAP), plain),
        "sharding": (sharding_player, ("Home", "ArrowRight", "ArrowRight")),
        "sharding-16": (lambda: sharding_player(num_ranks=16), ("End", "t", "?")),
        **{f"figure-{name}": (partial(labkit.figure, name), plain) for name in FIGURES},
        "compression": (compression_explorer, plain),
        "compression-fast": (compression_explorer, ("End", "t", "?")),
    }


OUTSIDE = """() => [...document.querySelectorAll("svg[role=img] *, button, label, dd, dt, canvas, p")].filter((at) => {
  const { left, right, width } = at.getBoundingClientRect();
  return width && at.checkVisibility() && !at.closest("defs") && (left < -1 || right > innerWidth + 1);
}).map((at) => `outside: ${at.tagName} ${at.textContent.slice(0, 40)}`)"""
# Words over other words: each pair of texts in the picture whose boxes share more than a sliver.
OVERLAPS = """() => [...document.querySelectorAll("svg[role=img]")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")].filter((at) => at.textContent.trim() && at.checkVisibility());
  const boxes = texts.map((at) => at.getBoundingClientRect());
  return boxes.flatMap((a, i) => boxes.slice(i + 1).flatMap((b, k) => {
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    return across > 2 && down > 5 ? [`"${texts[i].textContent}" over "${texts[i + 1 + k].textContent}"`] : [];
  }));
})"""


def shoot(browser: Any, folder: Path, name: str, body: str, doing: tuple[Do | str, ...]) -> None:
    """Save one state's sheet."""
    shots = {}
    for theme in THEMES:
        (folder / "page.html").write_text(PAGE.format(theme=theme, body=body))
        context = browser.new_context(color_scheme=theme)
        page = context.new_page()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            page.goto((folder / "page.html").as_uri())
            page.wait_for_selector("[data-painted], .labkit-figure[data-live] svg[role=img]")
            for each in doing:
                if isinstance(each, tuple):
                    set_slider(page, *each)
                else:
                    page.press("canvas, [data-part=stage]", each)
            page.wait_for_timeout(60)
            down = page.evaluate("Math.ceil(document.body.getBoundingClientRect().bottom) + 8")
            seen = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": down})
            shots[width, theme] = Image.open(io.BytesIO(seen))
            for fault in (*page.evaluate(OUTSIDE), *page.evaluate(OVERLAPS)):
                print(f"{name} {theme} {width}: {fault}", flush=True)
        context.close()
    (folder / "page.html").unlink()
    themes = [
        _under(_beside([shots[width, theme] for width in WIDTHS[:2]]), shots[WIDTHS[2], theme]) for theme in THEMES
    ]
    sheet = _beside(themes)
    sheet.save(folder / f"{name}.png")


def _beside(pictures: list[Image.Image]) -> Image.Image:
    sheet = Image.new("RGB", (sum(each.width + 10 for each in pictures), max(each.height for each in pictures)), GROUND)
    across = 0
    for each in pictures:
        sheet.paste(each, (across, 0))
        across += each.width + 10
    return sheet


def _under(above: Image.Image, below: Image.Image) -> Image.Image:
    sheet = Image.new("RGB", (max(above.width, below.width), above.height + below.height + 10), GROUND)
    sheet.paste(above, (0, 0))
    sheet.paste(below, (0, above.height + 10))
    return sheet


def write_index(folder: Path) -> None:
    """Write the page that shows all sheets of a folder, small; a click shows one as large as it is."""
    sheets = "".join(
        f'<figure><a href="{path.name}"><img loading="lazy" src="{path.name}" alt=""></a>'
        f"<figcaption>{path.stem}</figcaption></figure>"
        for path in sorted(folder.glob("*.png"))
    )
    style = (
        "body{font:14px system-ui,sans-serif;margin:12px;display:grid;gap:12px;background:#808080;"
        "grid-template-columns:repeat(auto-fill,minmax(420px,1fr))}figure{margin:0}img{width:100%}"
    )
    page = f'<!doctype html><meta charset="utf-8"><title>All views</title><style>{style}</style>{sheets}'
    (folder / "index.html").write_text(page, encoding="utf-8")


def main(folder: Path, *names: str) -> None:
    """Save the sheets of these states, or of all."""
    from playwright.sync_api import sync_playwright

    folder = folder.resolve()  # a page is opened by its whole path
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu"])
        for name, (make, doing) in states().items():
            if not names or name in names:
                made = make()
                shoot(browser, folder, name, made if isinstance(made, str) else made.to_html(), doing)
        browser.close()
    write_index(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
