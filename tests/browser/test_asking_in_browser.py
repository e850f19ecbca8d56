"""Predict and reveal in a live JupyterLab: before the guess nothing, then all, kernel or none."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from tests.browser.figure_pages import number
from tests.browser.test_timeline_widget import TIMELINE, WIDGET

if TYPE_CHECKING:
    from tests.browser.conftest import Lab

pytestmark = [pytest.mark.browser]

SETUP = TIMELINE.removesuffix("timeline\n") + "figure = labkit.schedule_explorer(num_stages=3, num_microbatches=5)"
PREDICT = 'labkit.predict("idle_share", {guess}, unit="%")'
CELLS = (
    SETUP,
    PREDICT.format(guess=None),
    'labkit.reveal("idle_share", 28.571, figure)',
    PREDICT.replace("idle_share", "hidden_share").format(guess=None),
    'labkit.reveal("hidden_share", 61.803, timeline)',
)
ANSWERS = ("28.6", "61.8", "28.571", "61.803")  # as a picture, a sentence or the data of either would say them


def _cells(*sources: str) -> list[Any]:
    return [nbformat.v4.new_code_cell(source.strip()) for source in sources]


def _outputs(lab: Lab) -> str:
    """Return everything that stands in the outputs of the page: text, scripts and attributes."""
    outer = "() => [...document.querySelectorAll('.jp-OutputArea')].map((each) => each.outerHTML).join()"
    return str(lab.page.evaluate(outer))


def _pictures(lab: Lab) -> int:
    return int(lab.page.locator(".jp-OutputArea-output :is(img, svg, canvas)").count())


@pytest.mark.long
def test_a_revealed_figure_is_nowhere_before_the_guess_and_stays_after_it(lab: Lab) -> None:
    lab.open("predict.ipynb", _cells(*CELLS))
    lab.run_all(timeout_s=60)
    page = lab.page
    page.wait_for_selector("text=Write your guess first")
    assert not lab.errors()
    assert _pictures(lab) == 0 and not [each for each in ANSWERS if each in _outputs(lab)]
    lab.screenshot("predict-before")
    saved = lab.saved("predict.ipynb")
    kept = json.dumps([cell.outputs for cell in saved.cells])
    assert "image/png" not in kept and "text/html" not in kept and not [each for each in ANSWERS if each in kept]

    # The learner writes both guesses into the cells, as a learner does, and runs all again.
    for place, guess in ((1, "40"), (3, "50")):
        line = page.locator(".jp-CodeCell").nth(place).locator(".cm-line").first
        line.locator("text=None").dblclick()
        page.keyboard.type(guess)
    lab.run_all(timeout_s=60)
    page.wait_for_selector(".labkit-figure[data-live] svg[role=img]")
    page.wait_for_selector(f"{WIDGET}[data-painted]")
    assert not lab.errors()
    said = page.inner_text(".jp-Notebook")
    assert "You guessed 40 %, it is 28.6 %: 11 percentage points too high." in said
    assert "You guessed 50 %, it is 61.8 %: 12 percentage points too low." in said
    assert number(page, "GPipe: bubble") == "28.6 %"
    lab.screenshot("predict-after")
    saved = lab.saved("predict.ipynb")
    assert saved.cells[1].source == PREDICT.format(guess=40)
    figures = [output for place in (2, 4) for output in saved.cells[place].outputs]
    results = [output.metadata["labkit"]["result"] for output in figures if "labkit" in output.metadata]
    assert results == [28.571, 61.803]
    assert sum("image/png" in output.get("data", {}) for output in figures) == 2

    lab.end_kernel("predict.ipynb")
    page.goto(f"{lab.url}/lab/workspaces/reopened/tree/predict.ipynb")
    page.wait_for_selector(".labkit-figure[data-live] svg[role=img]")
    page.wait_for_selector(".jp-RenderedImage img")
    assert page.locator(".jp-RenderedImage img").first.is_visible()
    assert "You guessed 40 %, it is 28.6 %" in page.inner_text(".jp-Notebook")
    lab.screenshot("predict-reopened")


ASKS = (
    'asked = figure.ask("Which bubble?", "%")\nasked',
    'asking = timeline.ask("How much of the time is a bubble?", "%")\nasking',
)


@pytest.mark.long
def test_a_figure_that_asks_by_itself_takes_a_number_and_then_shows_both(lab: Lab) -> None:
    lab.open("asks.ipynb", _cells(SETUP, *ASKS))
    lab.run_all(timeout_s=60)
    page = lab.page
    page.wait_for_selector("text=How much of the time is a bubble? Guess first")
    page.wait_for_function("() => document.querySelectorAll('button.jupyter-button').length === 2")
    assert not lab.errors()
    assert _pictures(lab) == 0 and "gpipe" not in _outputs(lab) and "busy" not in _outputs(lab)
    cells = page.locator(".jp-Notebook .jp-Cell").count()
    inputs = page.locator(".jp-OutputArea input[type=text]")
    inputs.first.focus()
    for key in ("b", "a", "x"):
        page.keyboard.press(key)
    page.locator("button.jupyter-button").first.click()
    page.wait_for_selector("text=A guess is a number such as 0.5.")
    assert page.locator(".jp-Notebook .jp-Cell").count() == cells and _pictures(lab) == 0
    lab.screenshot("asks-before")

    inputs.first.fill("40")
    page.locator("button.jupyter-button").first.click()
    page.wait_for_selector(".labkit-figure[data-live] svg[role=img]")
    assert "Which bubble? Your guess: 40 %." in page.inner_text(".jp-Notebook")
    inputs.last.fill("2,5")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{WIDGET}[data-painted]")
    assert "How much of the time is a bubble? Your guess: 2.5 %." in page.inner_text(".jp-Notebook")
    assert page.locator("button.jupyter-button").count() == 0
    page.wait_for_selector(".jp-RenderedImage", state="attached")
    assert page.locator(".jp-RenderedImage").is_hidden()  # the widget stands for it
    lab.screenshot("asks-after")

    saved = lab.saved("asks.ipynb")
    found = [saved.cells[place].outputs[0].data for place in (1, 2)]
    assert "labkit-figure" in found[0]["text/html"]
    assert re.match(r"How .* Your guess: 2\.5 %\.\n", found[1]["text/plain"])
    assert all("image/png" in data for data in found)
