"""Whoever is behind gets a working start, and loses nothing they wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.errors import LessonError
from labkit.lessons.catching_up import catch_up, read_pack, reset, write_pack
from labkit.lessons.earlier_answers import mine
from labkit.lessons.pristine import ORIGINALS

ROOT = Path(__file__).parents[2]
RING = "02_ring_all_reduce.ipynb"
OWN = "def chunk_bounds(numel, num_chunks):\n    return 'mine'\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A learner's notebooks as a release has them; exercise chunk_bounds is done."""
    notebooks = tmp_path / "notebooks"
    (notebooks / ORIGINALS).mkdir(parents=True)
    for path in (ROOT / "notebooks").glob("0[24]_*.ipynb"):
        (notebooks / ORIGINALS / path.name).write_bytes(path.read_bytes())
    notebook = nbformat.read(ROOT / "notebooks" / RING, as_version=4)
    cell_of(notebook, "chunk_bounds").source = OWN
    nbformat.write(notebook, notebooks / RING)
    return notebooks


def cell_of(notebook: Any, exercise: str) -> Any:
    return next(cell for cell in notebook.cells if cell.id == f"exercise-{exercise.replace('_', '-')}")


def test_without_a_pack_the_next_notebook_is_put_there_and_nothing_else_changes(folder: Path) -> None:
    before = (folder / RING).read_bytes()
    said: list[str] = []
    catch_up("ddp", folder, None, said.append)
    assert (folder / "04_ddp.ipynb").read_bytes() == (ROOT / "notebooks" / "04_ddp.ipynb").read_bytes()
    assert (folder / RING).read_bytes() == before
    assert said[0] == "04_ddp.ipynb: a fresh copy."
    assert "torch's own is used" in said[1]


def test_a_notebook_that_was_begun_stays(folder: Path) -> None:
    said: list[str] = []
    catch_up("02", folder, None, said.append)
    assert said[0] == f"{RING}: yours, unchanged."
    assert cell_of(nbformat.read(folder / RING, as_version=4), "chunk_bounds").source == OWN


def test_a_pack_fills_what_was_not_begun_and_keeps_what_was(folder: Path, tmp_path: Path) -> None:
    packed = write_pack("02", tmp_path / "02.pack", ROOT)
    assert read_pack(tmp_path / "02.pack") == packed
    said: list[str] = []
    catch_up("ddp", folder, tmp_path / "02.pack", said.append)
    notebook = nbformat.read(folder / RING, as_version=4)
    assert cell_of(notebook, "chunk_bounds").source == OWN
    assert "NotImplementedError" not in cell_of(notebook, "ring_sum").source
    assert "SOLUTION" not in cell_of(notebook, "ring_sum").source
    assert mine("ring_sum", otherwise=print, folder=folder) is not print
    assert any("chunk_bounds stay yours" in line for line in said)
    again: list[str] = []
    catch_up("ddp", folder, tmp_path / "02.pack", again.append)
    assert re.search(r"ring_sum\b.* came from a pack before; chunk_bounds stay yours", again[0])
    kept = nbformat.read(folder / "kept" / "02_ring_all_reduce.before-catch-up.ipynb", as_version=4)
    assert "NotImplementedError" in cell_of(kept, "ring_sum").source


def test_caught_up_functions_of_the_learner_are_their_own_again(folder: Path, tmp_path: Path) -> None:
    write_pack("02", tmp_path / "02.pack", ROOT)
    catch_up("ddp", folder, tmp_path / "02.pack", lambda _: None)
    assert mine("chunk_bounds", otherwise=len, folder=folder)(7, 3) == "mine"
    assert mine("count_bytes", otherwise=len, name="ring_bytes", folder=folder)(100.0, 2) == 100.0


def test_a_reset_puts_the_stub_back_and_keeps_what_was_there(folder: Path) -> None:
    said: list[str] = []
    reset("chunk_bounds", folder, said.append)
    stub = cell_of(nbformat.read(ROOT / "notebooks" / RING, as_version=4), "chunk_bounds").source
    assert cell_of(nbformat.read(folder / RING, as_version=4), "chunk_bounds").source == stub
    kept = folder / "kept" / "02_ring_all_reduce.before-reset-chunk_bounds.ipynb"
    assert cell_of(nbformat.read(kept, as_version=4), "chunk_bounds").source == OWN
    reset("2.2", folder, said.append)  # what people type
    assert said[-1] == "chunk_bounds is as it was handed out."


def test_a_terminal_in_the_notebooks_folder_finds_the_notebooks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, ["reset", "chunk_bounds"])
    assert done.exit_code == 0, done.output
    assert (folder / "kept" / "02_ring_all_reduce.before-reset-chunk_bounds.ipynb").is_file()


def test_two_resets_keep_two_copies(folder: Path) -> None:
    for text in ("one = 1", "two = 2"):
        notebook = nbformat.read(folder / RING, as_version=4)
        cell_of(notebook, "chunk_bounds").source = text
        nbformat.write(notebook, folder / RING)
        reset("chunk_bounds", folder, lambda _: None)
    assert sorted(path.name for path in (folder / "kept").iterdir()) == [
        "02_ring_all_reduce.before-reset-chunk_bounds-2.ipynb",
        "02_ring_all_reduce.before-reset-chunk_bounds.ipynb",
    ]


@pytest.mark.parametrize(
    ("exercise", "why"),
    [
        ("2.99", r"There is no exercise '2\.99'; there are: 2\.1 naive_all_reduce, 2\.2 chunk_bounds, "),
        ("average_gradients", "There is no 04_ddp.ipynb"),
    ],
)
def test_what_cannot_be_reset_is_named(folder: Path, exercise: str, why: str) -> None:
    with pytest.raises(LessonError, match=why):
        reset(exercise, folder, lambda _: None)


def test_a_broken_notebook_is_left_as_it_is(folder: Path) -> None:
    (folder / RING).write_text("{half a notebook")
    with pytest.raises(LessonError, match=r"cannot be read as a notebook.*left as it is"):
        reset("chunk_bounds", folder, lambda _: None)
    assert (folder / RING).read_text() == "{half a notebook"


@pytest.mark.parametrize("text", ["", "[]", '{"labkit_pack": 1}', '{"labkit_pack": 9, "lesson": "02", "answers": {}}'])
def test_what_is_no_pack_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.pack").write_text(text)
    with pytest.raises(LessonError, match=r"not a pack of answers|another version"):
        read_pack(tmp_path / "x.pack")


def test_without_originals_or_sources_it_says_where_they_would_be(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match="as they were handed out are missing"):
        catch_up("ddp", tmp_path, None, lambda _: None)
