"""`labkit mistake add`: a mistake that one student made in the sandbox is named to the next, who wrote it otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

import labkit
from grading.conftest import SANDBOX
from labkit.checks import class_mistakes as asked
from labkit.checks.class_mistakes import MISTAKES, read_mistakes
from labkit.cli import app
from labkit.grading import class_mistakes
from tests.checks.lesson_cells import answers, namespace

ROOT = Path(__file__).parents[2]
NAME, HINT = "multiplies instead of adding", "An all-reduce adds what arrives: tensor += incoming."
MINE = answers("collectives")["tree_all_reduce"]
ONE_WAY = MINE.replace("tensor += incoming", "tensor *= incoming")
ANOTHER_WAY = """
def tree_all_reduce(tensor, group=None):
    me, size = dist.get_rank(group), dist.get_world_size(group)

    def up(step):
        if step >= size:
            return
        if me % (2 * step):
            dist.send(tensor, group=group, group_dst=me - step)
            dist.recv(tensor, group=group, group_src=me - step)
            return
        child = me + step
        if child < size:
            piece = torch.empty_like(tensor)
            dist.recv(piece, group=group, group_src=child)
            tensor.copy_(piece * tensor)
        up(2 * step)
        if child < size:
            dist.send(tensor, group=group, group_dst=child)

    up(1)
"""
OTHER = MINE.replace("tensor += incoming", "tensor += 3 * incoming")


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that stands for the exercise's, in which nobody else looks."""
    for module in (class_mistakes, asked):
        monkeypatch.setattr(module, "folder_of", lambda exercise_id: tmp_path)
    return tmp_path


def _handed_in(path: Path, cells: Mapping[str, str]) -> Path:
    content = json.loads((ROOT / "notebooks" / "03_collectives.ipynb").read_text())
    for cell in content["cells"]:
        slug = cell["metadata"].get("labkit", {}).get("exercise")
        if slug in cells and "exercise" in cell["metadata"]["tags"]:
            cell["source"] = cells[slug]
    path.write_text(json.dumps(content))
    return path


def _add(file: Path, name: str = NAME, hint: str = HINT) -> tuple[int, str]:
    words = ["mistake", "add", "tree_all_reduce", str(file), "--name", name, "--hint", hint, "--sandbox", SANDBOX]
    done = CliRunner().invoke(app, [*words, "--course", str(ROOT)])
    return done.exit_code, done.output + done.stderr


@pytest.mark.in_turn
def test_a_mistake_that_was_added_is_named_however_it_is_written_and_no_other_one(room: Path, tmp_path: Path) -> None:
    code, said = _add(_handed_in(tmp_path / "anna.ipynb", {"tree_all_reduce": ONE_WAY}))
    assert code == 0 and str(room / MISTAKES) in said, said
    names = namespace(number="03", extra=ANOTHER_WAY)
    told = labkit.check("tree_all_reduce", names["tree_all_reduce"])
    assert told.shown is not None and told.shown.verdict is not None
    assert told.shown.verdict.mistake == NAME
    assert f"hint: {HINT}" in repr(told)
    names = namespace(number="03", extra=OTHER)
    assert HINT not in repr(labkit.check("tree_all_reduce", names["tree_all_reduce"]))
    kept = (room / MISTAKES).read_text()
    assert not [line for line in ONE_WAY.splitlines() if len(line.strip()) > 12 and line.strip() in kept]


@pytest.mark.long
def test_what_needs_no_hint_is_not_added_and_says_why(room: Path, tmp_path: Path) -> None:
    right, named = _handed_in(tmp_path / "a.ipynb", {"tree_all_reduce": MINE}), tmp_path / "b.ipynb"
    _handed_in(named, {"tree_all_reduce": MINE + "\n    tensor /= world_size\n"})
    empty = _handed_in(tmp_path / "c.ipynb", {})
    for file, words in (
        (right, "no check finds a mistake"),
        (named, "a check names this mistake already: 'mean instead of sum'"),
        (empty, "its cell is as it was handed out"),
    ):
        code, said = _add(file)
        assert code == 2 and words in said, said
    assert _add(right, "calls the library")[0] == 2 and _add(right, hint=" ")[0] == 2
    assert not (room / MISTAKES).exists()


def test_a_mistake_that_was_added_can_be_removed(room: Path) -> None:
    entry = {"name": NAME, "hint": HINT, "fingerprints": [["passed", {"told": "ab", "sums": [[1.0, 1.0]]}]]}
    (room / MISTAKES).write_text(json.dumps([entry]))
    assert [each.name for each in read_mistakes(room)] == [NAME]
    missing = CliRunner().invoke(app, ["mistake", "remove", "tree_all_reduce", "--name", "another"])
    assert missing.exit_code == 2 and repr(NAME) in missing.stderr
    assert CliRunner().invoke(app, ["mistake", "remove", "tree_all_reduce", "--name", NAME]).exit_code == 0
    assert not (room / MISTAKES).exists() and not read_mistakes(room)
