"""Students who have runs of their own: an own answer earns all of a find, a neighbour's nothing, both ways round."""

from __future__ import annotations

import json
import stat
import zipfile
from pathlib import Path

import pytest

import labkit
from labkit.commands.loading import load
from labkit.errors import ConfigError
from labkit.grading.course import find_course
from labkit.grading.keys import NOT_YOURS, judge_answer
from labkit.grading.variants import draw_for, keys_file, keys_for, released_variants, write_variants

ROOT = Path(__file__).parents[2]
FINDS = {"who_waits": "00", "slow_ring": "02", "late_rank": "04"}
CLASS = ("Ada", "Bo Neil", "bo neil")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("variants")
    key = folder / "gradebook.key"
    key.touch(mode=0o600)
    key.write_text((b"k" * 32).hex())
    made = write_variants(folder / "runs", CLASS, ROOT, key)
    assert made.students == len(CLASS) and set(FINDS) <= set(made.finds)
    return made.keys


@pytest.mark.parametrize("slug", FINDS)
def test_an_own_answer_earns_all_and_a_neighbours_nothing(slug: str, written: Path) -> None:
    course = find_course(FINDS[slug], ROOT)
    (exercise,) = (each for each in course.manifest.exercises if each.id == slug)
    keys = keys_for(written, {"a.ipynb": "Ada", "b.ipynb": "Bo Neil"}, ("a.ipynb", "b.ipynb"))
    assert keys["a.ipynb"][slug]["answers"] != keys["b.ipynb"][slug]["answers"]
    for own in keys:
        for whose, given in keys.items():
            judged = judge_answer(course, exercise, given[slug]["answers"], keys[own])
            assert judged.state == ("passed" if own == whose else "failed")


def test_a_file_that_is_nobodys_is_not_judged_and_told(written: Path) -> None:
    course = find_course("00", ROOT)
    (exercise,) = (each for each in course.manifest.exercises if each.id == "who_waits")
    keys = keys_for(written, {}, ("x.ipynb",))["x.ipynb"]
    own = keys_for(written, {"a": "Ada"}, ("a",))["a"]["who_waits"]["answers"]
    judged = judge_answer(course, exercise, own, keys)
    assert judged.state == "failed" and judged.cases[0].message == NOT_YOURS


def test_what_students_get_holds_runs_and_no_key_and_keys_are_read_by_one_alone(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = sorted((written.parent / "runs").glob("*.zip"))
    assert [path.name for path in packed] == ["Ada.zip", "Bo-Neil.zip", "bo-neil-2.zip"]
    assert written == keys_file(written.with_name("gradebook.key"))
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    (tmp_path / "theirs").write_text("{}")
    with pytest.raises(ConfigError, match="others can read it"):
        keys_for(tmp_path / "theirs", {}, ())
    with zipfile.ZipFile(packed[0]) as mine:
        assert all(name.endswith("/recording.json") for name in mine.namelist())
        mine.extractall(tmp_path)
    public = list(labkit.recorded("who_waits").rows())
    monkeypatch.chdir(tmp_path)
    assert list(labkit.recorded("who_waits").rows()) != public
    answers = json.loads(written.read_text())["Ada"]["who_waits"]["answers"]
    assert "The run is yours alone" in repr(labkit.answer("who_waits", **answers))


def test_the_same_student_gets_the_same_run_and_nobody_else_does() -> None:
    def drawn(key: bytes, student: str, slug: str) -> tuple[int, ...]:
        draw = draw_for(key, student, slug)
        return tuple(draw.randrange(1 << 30) for _ in range(4))

    same = drawn(b"k", "Ada", "who_waits")
    assert same == drawn(b"k", "Ada", "who_waits")
    assert same not in (
        drawn(b"l", "Ada", "who_waits"),
        drawn(b"k", "Bo", "who_waits"),
        drawn(b"k", "Ada", "late_rank"),
    )


def test_keys_are_not_written_into_what_students_get(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="which students get; name a folder outside for --variants"):
        released_variants(tmp_path / "class" / "mine", tmp_path / "class", ["Ada"], ROOT)
    with pytest.raises(ConfigError, match="there is nobody to draw runs for"):
        released_variants(tmp_path / "mine", tmp_path / "class", [], ROOT)
    assert load("labkit.grading.variants", "released_variants") is released_variants
