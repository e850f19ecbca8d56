"""Every lesson as a learner has it at its end: run live, looked at, played with, saved, reopened, converted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from tests.browser import painted
from tests.browser.test_notebook_in_browser import left_the_machine, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.browser.conftest import Lab

pytestmark = [pytest.mark.browser]

ROOT = Path(__file__).parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
VIEW = ".labkit-timeline, .labkit-figure"
SCROLLED = ".jp-Notebook .jp-WindowedPanel-outer"
WIDGET = "application/vnd.jupyter.widget-view+json"
EDITING = ("b", "a", "x", "d", "d", "y", "m", "z", "Enter")  # what inserts, cuts or changes cells in a notebook


def solved(name: str) -> nbformat.NotebookNode:
    """Return the student notebook with the solution's exercises and guesses written into it."""
    student = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    solution = {
        each.id: each.source for each in nbformat.read(ROOT / "solutions" / f"{name}.ipynb", as_version=4).cells
    }
    for cell in student.cells:
        if {"exercise", "design", "find", "why", "write", "predict"} & set(cell.metadata.get("tags", ())):
            cell.source = solution[cell.id]
    return student


def views(lab: Lab, selector: str) -> Iterator[Any]:
    """Give what the selector finds in the notebook, from top to bottom: a page holds the cells near its view only."""
    page = lab.page
    page.evaluate("(panel) => (document.querySelector(panel).scrollTop = 0)", SCROLLED)
    at_end = (
        "(p) => { const e = document.querySelector(p); return e.scrollTop + e.clientHeight >= e.scrollHeight - 2; }"
    )
    unseen = f":is({selector}):not([data-looked-at])"
    calm = 0  # at the end, how often nothing new came: a page that was just opened is still growing
    while calm < 4:
        page.wait_for_timeout(250 if calm else 120)  # the page lays out what has come into view
        while page.locator(f"{SCROLLED} {unseen}").count():
            found = page.locator(f"{SCROLLED} {unseen}").first.element_handle()
            found.evaluate("(root) => (root.dataset.lookedAt = '')")
            calm = 0
            yield found
        calm = calm + 1 if page.evaluate(at_end, SCROLLED) else 0
        page.evaluate("(panel) => (document.querySelector(panel).scrollTop += 600)", SCROLLED)


def play(lab: Lab, root: Any) -> bool:
    """Look at one view, use its keys and the wheel; return whether it is a timeline."""
    page = lab.page
    root.scroll_into_view_if_needed()
    if root.evaluate("(root) => root.matches('.labkit-timeline')"):
        page.wait_for_function("(root) => root.dataset.painted > 0", arg=root)
        assert painted.check(root)
        canvas = root.query_selector("canvas")
        canvas.focus()
        for key in (*EDITING, "ArrowRight", "c", "c", "t", "t", "?", "?", "[", "]", "Escape", "Home"):
            page.keyboard.press(key)
        whole = root.evaluate("(root) => root.labkit.state.view[1] - root.labkit.state.view[0]")
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
        page.mouse.wheel(0, -200)
        page.wait_for_function(
            "([root, whole]) => root.labkit.state.view[1] - root.labkit.state.view[0] < whole", arg=[root, whole]
        )
        page.keyboard.press("Home")
        return True
    page.wait_for_function("(root) => root.dataset.live === '' && root.querySelector('svg')", arg=root)
    numbers = root.eval_on_selector_all("[data-number]", "each => each.map((one) => one.textContent)")
    assert not [each for each in numbers if re.search("NaN|undefined|Infinity", each)]
    assert all(numbers) or root.query_selector("table [data-number]")  # of two schedules one may not have a number
    assert numbers or len(root.query_selector_all("[data-key] input, input[data-key]")) == 1  # a story may have none
    assert root.query_selector_all("svg[role=img] rect, svg[role=img] path")
    root.query_selector("[data-part=stage]").focus()
    for key in (*EDITING, "Home"):
        page.keyboard.press(key)
    before, last = (
        root.evaluate(f"(root) => {what}")
        for what in ("root.dataset.step", "+root.querySelector('[data-key=step]').max")
    )
    page.keyboard.press("ArrowRight")
    assert int(root.evaluate("(root) => root.dataset.step")) == min(int(before) + 1, last)
    page.keyboard.press("End")
    return False


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


@pytest.mark.long  # solutions run with `make test`, and what JupyterLab shows of figures is tried by smaller notebooks
@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_runs_is_played_with_saved_reopened_and_converted(lab: Lab, browser: Any, name: str) -> None:
    notebook = solved(name)
    file = f"{name}.ipynb"
    lab.open(file, notebook)
    lab.run_all(timeout_s=280)
    kinds = [play(lab, root) for root in views(lab, VIEW)]
    lab.screenshot(f"{name}-played")
    saved = lab.saved(file)

    # Everything ran, every check passed, and no key became a change of the notebook.
    errors = [f"{output.ename}: {output.evalue}" for output in outputs(saved) if output.output_type == "error"]
    assert not errors
    assert [cell.source for cell in saved.cells] == [cell.source for cell in notebook.cells]
    checks = {cell.id: text_of(cell) for cell in saved.cells if "check" in cell.metadata.get("tags", ())}
    assert not {cell: text for cell, text in checks.items() if not re.search(r"^Exercise \S.*: passed", text)}
    guesses = [cell for cell in saved.cells if "predict" in cell.metadata.get("tags", ())]
    assert guesses and not [cell for cell in saved.cells if "Write your guess first" in text_of(cell)]

    # What was looked at is all there is; beside each timeline its picture is kept.
    data = [output.get("data", {}) for output in outputs(saved)]
    figures = sum("labkit-figure" in each.get("text/html", "") for each in data)
    timelines = sum(WIDGET in each for each in data)
    assert (kinds.count(True), kinds.count(False)) == (timelines, figures)
    pictures = sum("image/png" in each and "text/html" not in each for each in data)
    assert pictures >= timelines and kinds

    lab.end_kernel(file)
    lab.page.goto(f"{lab.url}/lab/workspaces/reopened-{name}/tree/{file}")
    lab.page.wait_for_selector(".jp-Notebook .jp-Cell")
    again = [root.evaluate("(root) => root.tagName") for root in views(lab, ".jp-RenderedImage img, .labkit-figure")]
    assert (again.count("IMG"), again.count("DIV")) == (pictures, figures)
    lab.screenshot(f"{name}-reopened")
    assert not left_the_machine(lab)
    _converted(browser, lab.folder / file, pictures, figures)


def _converted(browser: Any, path: Path, pictures: int, figures: int) -> None:
    """Make HTML of a saved notebook and open it without a network."""
    command = [sys.executable, "-m", "nbconvert", "--to", "html", str(path)]
    subprocess.run(command, capture_output=True, timeout=180, check=True)
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(path.with_suffix(".html").as_uri(), wait_until="commit")
    live = "(n) => document.querySelectorAll('.labkit-figure[data-live] svg[role=img]').length === n"
    page.wait_for_function(live, arg=figures)
    sizes = (
        "each => each.filter((image) => image.naturalWidth > 100 && image.getBoundingClientRect().width > 100).length"
    )
    selector = ".jp-OutputArea-output img[src^='data:image/png']"
    assert page.eval_on_selector_all(selector, sizes) >= pictures
    context.close()
