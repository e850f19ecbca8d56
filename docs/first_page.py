"""What the site's first page and its gallery show: figures that play, and runs that go wrong."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

import frames
import gallery_runs
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import labkit
from labkit.lessons.played import LESSONS
from labkit.widgets import timeline_page
from labkit.widgets.timeline_columns import for_page

ROOT = Path(__file__).parents[1]
_ROW = re.compile(r"^\| \[(.+?)\]\(notebooks/(\w+)\.ipynb\) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def pages() -> dict[str, str]:
    """Return the parts of the first page and the gallery, by name below docs/made."""
    return {
        "lesson_map.md": _lesson_map(),
        "played.md": _played(),
        "door.md": _door(),
        "gallery.md": "\n".join(_gallery()),
        "pictures/ring.html": labkit.figure("ring", num_ranks=4).to_html(),
        "pictures/schedules.html": labkit.schedule_explorer().to_html(),
    }


def write_preview(path: Path) -> None:
    """Write the picture that stands beside a link to the site."""
    path.write_bytes(labkit.figure("ring", num_ranks=4).to_png())


def write_timelines(folder: Path) -> None:
    """Write a page for each timeline that is shown: a step of DDP, and the gallery's."""
    timelines = {shown.program.__name__: gallery_runs.run(shown)[0] for shown in gallery_runs.RUNS}
    for door in (late, mended):
        opening = labkit.run(door, on=labkit.virtual(4, gpu="h100"), echo=False).timeline
        assert opening is not None  # it was recorded
        run = for_page(opening) | {"alike": []}  # as many rows as the text names ranks
        still = f"<p>{escape(opening.summary())}</p>"
        frames.write_page(folder / f"{door.__name__}.html", timeline_page.whole([run], still), is_poster=True)
    timelines["step"] = labkit.run(_a_step, on=labkit.virtual(8, gpu="h100"), echo=False).timeline
    for name, timeline in timelines.items():
        frames.write_page(folder / f"{name}.html", timeline_page.page(timeline))


def late() -> None:
    """Run three steps; rank 2 has three times as much to compute as the others."""
    weight, gradients = torch.empty(512, 512), torch.empty(1_000_000)
    for _ in range(3):
        for _ in range(12 if dist.get_rank() == 2 else 4):
            weight @ weight
        dist.all_reduce(gradients)


def mended() -> None:
    """Run the same, each rank with its share."""
    weight, gradients = torch.empty(512, 512), torch.empty(1_000_000)
    for _ in range(3):
        for _ in range(6):
            weight @ weight
        dist.all_reduce(gradients)


def _door() -> str:
    """Return what the site opens with: a run with a late rank, the same mended, and the lines that made it."""
    runs = "".join(
        frames.frame(f"made/timelines/{door.__name__}.html", f"Timeline: {title}", 420, door.__name__)
        for door, title in ((late, "one of four ranks is late"), (mended, "each of four ranks has its share"))
    )
    named = (("late", "Uneven work", " checked"), ("mended", "The same work, shared evenly", ""))
    choices = "".join(
        f'<label><input type="radio" name="door" value="{value}"{checked}> {words}</label>'
        for value, words, checked in named
    )
    body = inspect.getsource(late).replace(
        '    """Run three steps; rank 2 has three times as much to compute as the others."""\n', ""
    )
    return "\n".join(
        [
            "```{raw} html",
            f'<div class="door"><p class="switch">{choices}</p>{runs}</div>',
            "```",
            "",
            "These lines made it, on four virtual H100s: rank 2 computes twelve products, the others four each, "
            "and `all_reduce` ends only when the last rank has come.",
            "",
            "```python",
            "import torch, torch.distributed as dist, labkit",
            "",
            body.replace(" -> None", "").rstrip(),
            "",
            'labkit.run(late, on=labkit.virtual(4, gpu="h100")).timeline',
            "```",
        ]
    )


def _a_step() -> None:
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(512, 512) for _ in range(6))), bucket_cap_mb=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(1024 * (1 + dist.get_rank() // 4), 512)  # the second half of the ranks has twice as much to do
    model(batch).sum().backward()
    optimizer.step()


def _rows() -> list[tuple[str, str, str, str]]:
    """Return title, file, what one builds and minutes of each lesson, as the README's table has them."""
    return _ROW.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def _played() -> str:
    """Return links to the lessons that play in the page, in the order in which one reads them."""
    links = [
        f'<li><a href="made/played/{name}.html">{escape(title)}</a></li>'
        for title, name, _, _ in _rows()
        if name[:2] in LESSONS
    ]
    return "\n".join(["```{raw} html", '<ul class="played">', *links, "</ul>", "```"])


def _lesson_map() -> str:
    """Return the lessons as cards: title, what one will have built, and a bar; the longest lesson's is a card wide."""
    lines = ['<ol class="lesson-map">']
    timed = [(*row, *_minutes(row[3])) for row in _rows()]
    longest = max(sum(core) + bonus for *_, core, bonus in timed)
    for title, name, built, _, core, bonus in timed:
        says = f"{' + '.join(map(str, core))} min" + (f"; bonus {bonus}" if bonus else "")
        shares = f"--core: {sum(core) / longest:.1%}; --all: {(sum(core) + bonus) / longest:.1%}"
        bar = f'<span class="minutes" style="{shares}">{says}</span>'
        what = re.sub(r"`(.+?)`", r"<code>\1</code>", escape(built))
        lines.append(f'<li><a href="made/lessons/{name}.html">{escape(title)}</a><p>{what}</p>{bar}</li>')
    return "\n".join(["```{raw} html", *lines, "</ol>", "```"])


def _minutes(time: str) -> tuple[list[int], int]:
    """Return the minutes of each sitting and of the bonus, of a row's "40+45; 3"."""
    core, _, bonus = time.partition("; ")
    return [int(each) for each in core.split("+")], int(bonus or 0)


def _gallery() -> Iterator[str]:
    """Yield the lines of the page of runs that go wrong."""
    titles = {name: title for title, name, _, _ in _rows()}
    yield "# Runs that go wrong\n"
    yield "Each ran on `labkit.virtual`, and its timeline is the run's own: drag to zoom, hover over a bar.\n"
    for shown in gallery_runs.RUNS:
        name = shown.program.__name__
        error = gallery_runs.run(shown)[1]
        yield f"## {shown.title}\n"
        yield f"Look for **{shown.sign}**.\n"
        in_frame = frames.frame(f"timelines/{name}.html", f"Timeline: {shown.title}", 150 + 60 * shown.ranks)
        yield f"```{{raw}} html\n{in_frame}\n```\n"
        if error:
            yield f"What labkit says:\n\n```text\n{error.split(chr(10) * 2)[0]}\n```\n"
        yield f"```python\n{inspect.getsource(shown.program)}```\n"
        yield f"Explained in [{titles[shown.lesson]}](lessons/{shown.lesson}).\n"
