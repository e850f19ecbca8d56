"""Notebooks for Kaggle and Colab: what a learner's are, behind one cell that installs labkit from an uploaded wheel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from labkit.errors import LessonError
from labkit.lessons import hosted
from labkit.lessons.manifest import read

ROOT = Path(__file__).parents[2]
WHEEL = "labkit_torch-0.2.0-py3-none-any.whl"


@pytest.fixture
def written(tmp_path: Path) -> list[Path]:
    (tmp_path / WHEEL).touch()
    return hosted.write(tmp_path)


def test_each_lesson_is_there_behind_one_cell_and_is_still_that_lesson(written: list[Path]) -> None:
    assert [path.name for path in written] == sorted(path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    for path in written:
        first, *rest = nbformat.read(path, as_version=4).cells
        assert WHEEL in first.source
        assert rest == nbformat.read(ROOT / "notebooks" / path.name, as_version=4).cells
        assert read(path).exercises == read(ROOT / "notebooks" / path.name).exercises


def test_the_cell_installs_the_uploaded_wheel_and_what_images_lack_and_leaves_their_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / WHEEL).touch()
    monkeypatch.setattr(hosted, "PLACES", ("/nowhere/*/", "/nowhere/", f"{tmp_path}/"))
    ran: list[list[str]] = []
    source = hosted.first_cell(WHEEL)
    monkeypatch.setattr("subprocess.run", lambda words, **_: ran.append(words))
    names: dict[str, Any] = {}
    exec(source.partition("import labkit\n")[0], names)
    (one, two) = (words[words.index("--quiet") + 1 :] for words in ran)
    assert one == ["--no-deps", f"{tmp_path}/{WHEEL}"]
    assert [re.split("[<>=]", each)[0] for each in two] == list(hosted.ABSENT)
    project = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{each}"' in project for each in two)


def test_without_the_wheel_the_cell_says_what_to_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted, "PLACES", (f"{tmp_path}/*/", f"{tmp_path}/", "/nowhere/"))
    with pytest.raises(FileNotFoundError, match="upload it, then run this cell again"):
        exec(hosted.first_cell(WHEEL), {})


def test_a_folder_without_a_wheel_or_with_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match="holds 0; `make dist` writes it"):
        hosted.write(tmp_path)
