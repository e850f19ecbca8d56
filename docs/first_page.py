"""What the site's first page and its gallery show: figures that play, and runs that go wrong."""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gallery_runs
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import labkit

ROOT = Path(__file__).parents[1]
_ROW = re.compile(r"^\| \[(.+?)\]\(notebooks/(\w+)\.ipynb\) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def pages() -> dict[str, str]:
    """Return the parts of the first page and the gallery, by name below docs/made."""
    return {
        "lesson_map.md": _lesson_map(),
        "gallery.md": "\n".join(_gallery()),
        "pictures/ring.html": _html(labkit.figure("ring", num_ranks=4)),
        "pictures/schedules.html": _html(labkit.schedule_explorer()),
    }


def write_preview(path: Path) -> None:
    """Write the picture that stands beside a link to the site."""
    path.write_bytes(base64.b64decode(_bundle(labkit.figure("ring", num_ranks=4))["image/png"]))


def write_timelines(folder: Path) -> None:
    """Write a page for each timeline that is shown: a step of DDP, and the gallery's."""
    folder.mkdir(parents=True, exist_ok=True)
    labkit.run(_a_step, on=labkit.virtual(8, gpu="h100"), echo=False).timeline.to_html(folder / "step.html")
    for shown in gallery_runs.RUNS:
        gallery_runs.run(shown)[0].to_html(folder / f"{shown.program.__name__}.html")


def _a_step() -> None:
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(512, 512) for _ in range(6))), bucket_cap_mb=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(1024 * (1 + dist.get_rank() // 4), 512)  # the second half of the ranks has twice as much to do
    model(batch).sum().backward()
    optimizer.step()


def _bundle(figure: Any) -> dict[str, str]:
    bundle = figure._repr_mimebundle_()
    return bundle[0] if isinstance(bundle, tuple) else bundle


def _html(figure: Any) -> str:
    return _bundle(figure)["text/html"]


def _lesson_map() -> str:
    """Return the README's table of lessons, with links to their pages here."""
    rows = _ROW.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    lines = ["| lesson | you will have built | minutes + bonus |", "|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| [{title}](made/lessons/{name}) | {built} | {time} |" for title, name, built, time in rows)]
    )


def _gallery() -> Iterator[str]:
    """Yield the lines of the page of runs that go wrong."""
    yield "# Runs that go wrong\n"
    yield "Each ran on `labkit.virtual`, and its timeline is the run's own: drag to zoom, hover over a bar.\n"
    for shown in gallery_runs.RUNS:
        timeline, error = gallery_runs.run(shown)
        name = shown.program.__name__
        yield f"## {shown.title}\n"
        yield f"```python\n{inspect.getsource(shown.program)}```\n"
        yield f"{timeline.summary().splitlines()[0]} Look for {shown.sign}.\n"
        if error:
            yield f"```text\n{error.split(chr(10) * 2)[0]}\n```\n"
        yield _frame(f"timelines/{name}.html", f"Timeline: {shown.title}", shown.ranks)
        yield f"Lesson [{shown.lesson[:2]}](lessons/{shown.lesson}) explains it.\n"


def _frame(page: str, title: str, num_ranks: int) -> str:
    height = 150 + 60 * num_ranks
    frame = f'<iframe class="labkit-page" src="{page}" title="{title}" style="height: {height}px"></iframe>'
    return f"```{{raw}} html\n{frame}\n```\n"
