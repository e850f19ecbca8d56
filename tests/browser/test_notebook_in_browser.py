"""What a learner sees: real notebooks, in a real JupyterLab, in a real Chromium."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest

if TYPE_CHECKING:
    from tests.browser.conftest import Lab

pytestmark = [pytest.mark.browser]

ROOT = Path(__file__).parents[2]
LESSON = "02_ring_all_reduce.ipynb"

EXCHANGE = """
import torch
import torch.distributed as dist
import labkit

def exchange():
    value = torch.full((250_000,), float(dist.get_rank() + 1))
    dist.all_reduce(value)
    print("the sum is", value[0].item())
    return value[0].item()

run = labkit.run(exchange, on=labkit.local(2))
run.results
"""


def _cells(*sources: str) -> list[nbformat.NotebookNode]:
    return [nbformat.v4.new_code_cell(source.strip()) for source in sources]


def left_the_machine(lab: Lab) -> list[str]:
    """Return the addresses beyond this machine that the page asked for."""
    return [
        url
        for url in lab.requests
        if urllib.parse.urlsplit(url).scheme not in ("data", "blob", "about")
        and urllib.parse.urlsplit(url).hostname not in ("127.0.0.1", "localhost")
    ]


@pytest.mark.in_turn
def test_ranks_print_results_come_back_and_the_timeline_is_a_picture(lab: Lab) -> None:
    lab.open("exchange.ipynb", _cells(EXCHANGE, "run.timeline"))
    lab.run_all(timeout_s=60)
    lab.screenshot("exchange")
    assert not lab.errors()
    outputs = lab.page.inner_text(".jp-Notebook")
    assert "[3.0, 3.0]" in outputs
    assert "the sum is 3.0" in outputs
    lab.page.wait_for_selector(".labkit-timeline[data-painted]")
    picture = lab.page.wait_for_selector(".jp-OutputArea img", state="attached")  # behind the widget
    assert picture.evaluate("image => image.naturalWidth") > 300
    assert not left_the_machine(lab)


def text_of(cell: nbformat.NotebookNode) -> str:
    """Return what a cell put out, as text."""
    return "\n".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.get("outputs", ())
    )


@pytest.mark.long
def test_an_exercise_not_yet_done_says_so_in_its_own_words(lab: Lab) -> None:
    notebook = nbformat.read(ROOT / "notebooks" / LESSON, as_version=4)
    code = [at for at, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    first_check = next(at for at in code if "labkit.check" in notebook.cells[at].source)
    notebook.cells = notebook.cells[: first_check + 1]
    lab.open("not-yet.ipynb", notebook)
    lab.run_all(timeout_s=120)
    cells = lab.saved("not-yet.ipynb").cells
    said = "\n".join(map(text_of, cells)) + "".join(
        output.evalue for cell in cells for output in cell.get("outputs", ()) if output.output_type == "error"
    )
    assert "Exercise 2.1: Reduce to rank 0, then send back" in said
    assert not left_the_machine(lab)
