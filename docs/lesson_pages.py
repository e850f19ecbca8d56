"""Each lesson as a page of the site: the learner's notebook, with a finished run's outputs and live timelines."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import frames

from labkit.lessons.notebook import as_text
from labkit.lessons.played import LESSONS
from labkit.lessons.presentation import DRAWN
from labkit.lessons.shown import shown_notebook
from labkit.lessons.source import load
from labkit.widgets import deck_data, timeline_page

ROOT = Path(__file__).parents[1]
TIMELINES = "lessons/timelines"
"""The folder of the timelines' pages, below made/."""


def pages() -> dict[str, str]:
    """Return each lesson as a notebook in the learner's version, by name below docs/made."""
    found = {}
    for source, notebook in _lessons():
        titles = {each.number: each.title for each in load(source).manifest.exercises}
        _open(notebook, source.stem)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                # Lessons name each other's notebooks; here each is a page.
                cell.source = re.sub(r"\]\((\d\d_\w+)\.ipynb\)", r"](\1)", cell.source)
                cell.source = _headed(cell.source, titles)
                continue
            cell.source = re.sub(r"\n{3,}", "\n\n", cell.source)  # two empty lines part functions of a file
            if _only_imports(cell.source):
                cell.metadata["tags"] = [*cell.metadata.get("tags", ()), "hide-input"]
                cell.metadata["mystnb"] = {"code_prompt_show": "Imports", "code_prompt_hide": "Imports"}
        for output in (each for cell in notebook.cells for each in cell.get("outputs", ())):
            if "image/png" in output.get("metadata", {}) and "text/html" not in output.data:
                output.data["text/html"] = _picture(output)
        for name, output, runs in _live(source, notebook):
            height = 420 if len(runs) == 1 else 860  # two runs fit themselves into the window that they find
            output.data["text/html"] = frames.frame(f"timelines/{name}", f"Timeline: {runs[0]['title']}", height)
        found[f"lessons/{source.stem}.ipynb"] = as_text(notebook)
    return found


def _open(notebook: Any, name: str) -> None:
    """Let a lesson open with how it is run and with its first picture; hints are told of at the first exercise."""
    first, *others = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    telling = next((cell for cell in (first, *others) if "\n**Stuck?**" in cell.source), first)
    telling.source, stuck, hints = telling.source.partition("\n**Stuck?**")
    heading, _, prose = first.source.partition("\n")
    first.source = f"{heading}\n{prose.rstrip()}\n\n{_run_it(name)}\n\n{_face(notebook)}\n"
    if stuck:
        exercise = next(cell for cell in others if "### Exercise" in cell.source)
        exercise.source += f"\n{stuck}{hints}"


def _run_it(name: str) -> str:
    play = f'<a class="play" href="../played/{name}.html">Play it here</a>' if name[:2] in LESSONS else ""
    return (
        f'<p class="run-it">{play}<span>{"Or run" if play else "Run"} it: <code>make lab</code> in your copy of '
        f'labkit, then open <code>{name}.ipynb</code> (<a href="../notebooks/{name}.ipynb" download>download</a>)'
        "</span></p>"
    )


def _face(notebook: Any) -> str:
    """Return the first figure that explains something, live, else the first recorded run's picture; "" without any."""
    cells = [cell for cell in notebook.cells if "figure" in cell.metadata.get("tags", ())]
    for cell in sorted(cells, key=lambda cell: "recorded(" in cell.source):
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                is_live = DRAWN in data.get("text/html", "")
                # The same figure stands further down; each has a mark that its program finds it by.
                shown = re.sub(r'"(f[0-9a-f]{12})"', r'"\1face"', data["text/html"]) if is_live else _picture(output)
                return f'`````{{raw}} html\n<div class="face">\n{shown}\n</div>\n`````'
    return ""


def write_notebooks(folder: Path) -> None:
    """Copy the notebook that a learner opens of each lesson into a folder of the site."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        shutil.copyfile(path, folder / path.name)


def _headed(prose: str, titles: Mapping[str, str]) -> str:
    """Return prose in which a short question, whose number is bold, has a heading, and sources are a section."""

    def heading(found: re.Match[str]) -> str:
        return f"### Exercise {found[1]} {titles[found[1]]}\n\n" if found[1] in titles else found[0]

    prose = re.sub(r"^\*\*(\d+\.\d+)\.\*\* ", heading, prose, flags=re.M).replace("### Sources", "## Sources")
    return re.sub(r"^(### Exercise .+) \(bonus\)$", r"\1", prose, flags=re.M)  # the section says so


def _only_imports(code: str) -> bool:
    """Return whether a cell does nothing but import."""
    try:
        return all(isinstance(each, ast.Import | ast.ImportFrom) for each in ast.parse(code).body)
    except SyntaxError:  # a line for the notebook itself, such as %pip
        return False


def write_timelines(made: Path) -> None:
    """Write the page of each timeline that a lesson's page shows; made is the site's folder of made pages."""
    for source, notebook in _lessons():
        for name, output, runs in _live(source, notebook):
            still = f"{_picture(output)}<p>{escape(str(output.data['text/plain']))}</p>"
            frames.write_page(made / TIMELINES / name, timeline_page.whole(runs, still))


def _lessons() -> Iterator[tuple[Path, Any]]:
    for source in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py")):
        yield source, shown_notebook(load(source), source.with_suffix(".ipynb"))


def _picture(output: Any) -> str:
    """Return an output's picture as HTML, as wide as its metadata say: a sharp one has two pixels for each there."""
    size = output.metadata.get("image/png", {})
    width = f' width="{size["width"]}"' if size else ""
    picture = "".join(output.data["image/png"].split())
    return f'<img style="max-width:100%"{width} alt="" src="data:image/png;base64,{picture}">'


def _live(source: Path, notebook: Any) -> Iterator[tuple[str, Any, list[dict[str, Any]]]]:
    """Yield each output that kept its timelines: the file of their page, the output, and what the page shows."""
    number = 0
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if kept := deck_data.runs(output.get("metadata", {})):
                number += 1
                yield f"{source.stem}_{number}.html", output, json.loads(kept)
