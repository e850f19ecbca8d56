"""Students who have runs of their own: an own answer earns all of a find, a neighbour's nothing, both ways round."""

from __future__ import annotations

import json
import os
import runpy
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import labkit
from labkit.checks.question import misuse, read_key, read_question
from labkit.commands.loading import load
from labkit.errors import ConfigError
from labkit.grading.book.whose import people_in
from labkit.grading.course import find_course
from labkit.grading.keys import NOT_YOURS, judge_answer
from labkit.grading.variants import draw_for, keys_file, keys_for, recorders, released_variants, write_variants
from labkit.lessons.class_course import HIDDEN
from labkit.timeline import Timeline

ROOT = Path(__file__).parents[2]
FINDS = {"who_waits": "00", "slow_ring": "02", "late_rank": "04"}
CLASS = ("Ada", "Bo Neil", "bo neil")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("variants")
    key = folder / "gradebook.key"
    key.touch(mode=0o600)
    key.write_text((b"k" * 32).hex())
    course = drawing(folder / "course", *FINDS)
    made = write_variants(folder / "runs", CLASS, course, key)
    assert made.students == len(CLASS) and set(FINDS) == set(made.finds)
    return made.keys


def drawing(course: Path, *slugs: str) -> Path:
    """Return a course that draws runs for these finds alone."""
    for slug in slugs:
        path = recorders(ROOT)[slug].parent
        (course / HIDDEN / path.parent.name).mkdir(parents=True)
        (course / HIDDEN / path.parent.name / slug).symlink_to(path)
    return course


@pytest.mark.in_turn
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


@pytest.mark.in_turn
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
    asked = 'labkit.answer("who_waits", rank={}, waits_in="all_reduce", cause="computes for longer")'
    cells = ("import labkit", "late = 3", f"print({asked.format('late')})", f"print({asked.format(3)})")
    shell = "from IPython.core.interactiveshell import InteractiveShell; shell = InteractiveShell.instance()\n"
    runs = "".join(f"shell.run_cell({cell!r}, store_history=True)\n" for cell in cells)
    ran = subprocess.run([sys.executable, "-c", shell + runs], capture_output=True, text=True, cwd=tmp_path)
    elsewhere, here = ran.stdout.strip().splitlines()
    assert 'Write the values themselves: labkit.answer("who_waits", rank=3, ' in elsewhere, ran
    assert "it counts when you hand in" in here


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


READ = {
    "hot_spot": "starts_ms", "late_rank": "late_ms", "trains_worse": "gap_ms", "starved_step": "share",
    "who_holds": "extra_mb", "lost_update": "lost",
}  # fmt: skip


@pytest.mark.parametrize("slug", READ)
def test_what_a_drawn_key_says_is_read_from_its_run(slug: str) -> None:
    """Of the two runs that are stored, the same is read as their keys say, which were written by hand."""
    path = recorders(ROOT)[slug]
    read = runpy.run_path(str(path))[READ[slug]]
    for folder in (path.parent, ROOT / "labkit" / "exercises" / path.parts[-3] / slug):
        key, timeline = read_key(folder / "key.json"), Timeline.load(folder / "recording.json")
        if slug == "lost_update":
            assert read(timeline) == [(key.answers["rank"], key.answers["version"])]
        else:
            found = read(timeline) if slug in ("hot_spot", "starved_step") else read(timeline, key.answers["rank"])
            assert key.is_right(READ[slug], found), (folder, found)


@pytest.mark.long
@pytest.mark.parametrize("slug", sorted(recorders(ROOT)))
def test_a_drawn_key_answers_its_question_and_is_hardly_ever_anothers(slug: str) -> None:
    path = recorders(ROOT)[slug]
    question = read_question(ROOT / "labkit" / "exercises" / path.parts[-3] / slug / "question.json")
    drawn = runpy.run_path(str(path))["drawn"]
    keys = [drawn(draw_for(b"k", student, slug))[1]["answers"] for student in "abcd"]
    assert [misuse(question, key) for key in keys] == [""] * len(keys)
    assert len({json.dumps(key) for key in keys}) > 1


def test_every_find_with_points_is_drawn() -> None:
    courses = (find_course(path.name[:2], ROOT) for path in (ROOT / "solutions").glob("[0-9]*.py"))
    finds = {each.id for course in courses for each in course.manifest.exercises if each.kind == "find" and each.points}
    assert finds and finds <= set(recorders(ROOT))


@pytest.mark.long
def test_a_class_is_graded_by_the_command_each_by_a_run_of_their_own(tmp_path: Path) -> None:
    people = {"ada": "Ada Lovelace", "grace": "Grace Hopper", "alan": "Alan Turing"}
    roster = "".join(f"{name},{login}@example.org\n" for login, name in people.items())
    (tmp_path / "roster.csv").write_text(f"Name,Email\n{roster}")
    url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    labkit_command("roster", "import", str(tmp_path / "roster.csv"), book=url)
    course = drawing(tmp_path / "course", "who_waits")
    write_variants(tmp_path / "runs", people_in(url), course, tmp_path / "gradebook.key")
    keys = json.loads(keys_file(tmp_path / "gradebook.key").read_text())
    right = {whose: keys[whose]["who_waits"]["answers"] for whose in keys}
    names = {login: next(whose for whose in keys if login in whose.lower()) for login in people}
    assert right[names["alan"]] != right[names["ada"]]
    for login, whose in {"ada": "ada", "grace": "grace", "alan": "ada"}.items():
        content = json.loads((ROOT / "notebooks" / "00_start_here.ipynb").read_text())
        (cell,) = [each for each in content["cells"] if each["id"] == "find-who-waits"]
        given = ", ".join(f"{name}={value!r}" for name, value in right[names[whose]].items())
        cell["source"] = f'labkit.answer("who_waits", {given})'
        (tmp_path / "in" / f"{login}@example.org").mkdir(parents=True)
        (tmp_path / "in" / f"{login}@example.org" / "00_start_here.ipynb").write_text(json.dumps(content))
    out = tmp_path / "out"
    labkit_command("grade", str(tmp_path / "in"), "--lesson", "00", "--course", str(ROOT), "--out", str(out),
                   "--points-only", "--jobs", "1", "--key", str(tmp_path / "gradebook.key"), book=url)  # fmt: skip
    earned = {
        path.parent.name.split("@")[0]: json.loads(path.read_text())["score"] for path in out.glob("*/result.json")
    }
    assert earned == {"ada": 6.0, "grace": 6.0, "alan": 0.0}


def labkit_command(*words: str, book: str) -> None:
    program = "from labkit.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program, *words],
        env=os.environ | {"LABKIT_GRADEBOOK": book}, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
