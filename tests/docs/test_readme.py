"""The README is short, and says of each lesson what is true of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import labkit
from labkit.lessons import readme
from labkit.lessons.course import source_files
from labkit.lessons.source import load
from labkit.timeline.training import training

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_stranger_finishes_it() -> None:
    assert len(README.split()) <= 1020  # a third of them the table of seventeen lessons


def test_its_ten_lines_give_what_it_shows() -> None:
    code = README.split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    shown = re.findall(r"^(labkit\.run.+?) +# (.+)$", code, re.MULTILINE)
    assert len(shown) == 2
    names: dict[str, object] = {}
    exec(code[: code.index(shown[0][0])], names)
    assert [repr(eval(line, names)) for line, _ in shown] == [output for _, output in shown]


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_its_fsdp2_script_takes_what_it_shows() -> None:
    script = labkit.script(ROOT / "tests" / "scripts" / "programs" / "fsdp2.py")
    run = labkit.run(script, on=labkit.virtual(64, gpu="h100", shapes=True, fold=1), echo=False)
    assert run.timeline is not None
    found = training(run.timeline)
    assert found.step_ns is not None and found.exposed_ns is not None and found.peak_bytes is not None
    share = 100 * found.exposed_ns / found.step_ns
    shown = f"{found.step_ns / 1e6:.1f} ms a step, {share:.0f} % exposed communication, {found.peak_bytes / 1e9:.2f} GB"
    assert f"`--shapes --fold 1`: {shown}" in " ".join(README.split())


def test_every_file_it_links_is_there() -> None:
    linked = re.findall(r"\]\(([^)#]+)", README)
    assert len(linked) > 20
    assert [link for link in linked if not (ROOT / link).exists()] == []


def test_each_lesson_has_its_row_with_its_title_and_minutes() -> None:
    sources = source_files(ROOT)
    assert re.findall(r"^\| \[.+?\]\(notebooks/(\w+)\.ipynb\) \| .+? \|$", README, re.MULTILINE) == [
        path.stem for path in sources
    ]
    drifted = [path.stem for path in sources if readme.with_row(README, load(path)) != README]
    assert not drifted, "make build"
