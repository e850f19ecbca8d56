"""One executed notebook with every view, and what stands for a site that lets no program through."""

from __future__ import annotations

from pathlib import Path

import nbformat
from bs4 import BeautifulSoup
from nbclient import NotebookClient

SETUP = """
import labkit, torch, torch.distributed as dist

def exchange():
    value = torch.ones(1000)
    dist.all_reduce(value)

run = labkit.run(exchange, on=labkit.local(2), echo=False)
run.timeline
"""
COMPARED = 'labkit.compare(run, labkit.run(exchange, on=labkit.virtual(2)), names=("measured", "predicted"))'
FAILS = """
def naive_all_reduce(tensor):
    if dist.get_rank():
        dist.recv(tensor, 0)
        dist.send(tensor, 0)
    else:
        for peer in range(1, dist.get_world_size()):
            part = torch.empty_like(tensor)
            dist.recv(part, peer)
            tensor += part
        for peer in range(1, dist.get_world_size()):
            dist.send(tensor, peer)

labkit.check("naive_all_reduce", naive_all_reduce)
"""
EXPLORERS = ("ring_player", "schedule_explorer", "bucket_explorer", "staleness_view", "compression_explorer")
ASKING = 'run.timeline.ask("How much of it is waiting?", "%")'
NUM_TIMELINES = 3
NUM_PICTURES = NUM_TIMELINES + len(EXPLORERS)


def executed(path: Path) -> Path:
    """Write the notebook as a kernel that nobody looks at leaves it, its outputs included, and return where it is."""
    calls = [SETUP, COMPARED, FAILS, *(f"labkit.{name}()" for name in EXPLORERS), ASKING]
    cells = [nbformat.v4.new_code_cell(call.strip()) for call in calls]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["language_info"] = {"name": "python"}
    NotebookClient(notebook, timeout=120, record_timing=False, kernel_name="python3").execute()
    nbformat.write(notebook, path)
    return path


def sanitised(page: str) -> str:
    """Return a page as a site shows it that strips programs, styles, frames and attributes, but for an image's own.

    The images of PNG outputs are data: addresses in nbconvert's page, as those inside our HTML are: GitHub converts
    first and sanitises afterwards (jupyter/nbviewer issue 453), so what keeps one kind keeps the other.
    """
    soup = BeautifulSoup(page, "html.parser")
    for tag in soup.find_all(("script", "style", "link", "meta", "iframe", "object", "form", "svg")):
        tag.decompose()
    for tag in soup.find_all(True):
        tag.attrs = {key: value for key, value in tag.attrs.items() if key in ("src", "alt", "href")}
    return str(soup)
