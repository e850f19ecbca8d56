"""What the board keeps: the newest of each learner and exercise, nothing lost, nobody under another's name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from labkit.board.results import MOST_LEARNERS, Reported, Results, reported
from labkit.board.room import Room
from labkit.errors import ConfigError, EnvironmentProblem

COURSE = {
    "02": [("naive_all_reduce", "2.1", "To the root"), ("halving_doubling", "2.10", "Halving")],
    "03": [("broadcast_module", "3.1", "Broadcast")],
}
KEY = "a-key-of-ones-own"


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Results]:
    minutes = count()
    made = Results(tmp_path / "class.sqlite", now=lambda: 60.0 * next(minutes))
    yield made
    made.close()


def test_what_has_passed_stays_passed_and_tries_are_counted_until_then(results: Results) -> None:
    for passed in (False, False, True, False):
        results.record(Reported("ada", KEY + " ada", "naive_all_reduce", passed))
    assert results.standing(COURSE)["learners"] == {"ada": {"naive_all_reduce": [1, 3]}}


def test_the_exercise_that_most_are_on_holds_the_room_up(results: Results) -> None:
    for name in ("ada", "bo", "cy"):
        results.record(Reported(name, f"{KEY} of {name}", "naive_all_reduce", name != "bo"))
    for name in ("ada", "cy"):
        results.record(Reported(name, f"{KEY} of {name}", "halving_doubling", False))
    standing = results.standing(COURSE)
    assert standing["holdup"] == "halving_doubling"
    first, second = standing["lessons"]["02"]
    assert (first["passed"], first["on_it"], second["passed"], second["on_it"]) == (2, 1, 0, 2)
    assert second["minutes"] > 0


def test_nobody_is_on_what_they_passed_last(results: Results) -> None:
    results.record(Reported("ada", KEY + " ada", "naive_all_reduce", False))
    results.record(Reported("ada", KEY + " ada", "broadcast_module", True))
    assert results.standing(COURSE)["holdup"] is None


def test_who_has_passed_is_on_the_next_of_the_lesson_that_they_have_not(results: Results) -> None:
    results.record(Reported("ada", KEY + " ada", "naive_all_reduce", True))
    results.record(Reported("bo", KEY + " bo", "halving_doubling", True))
    results.record(Reported("cy", KEY + " cy", "halving_doubling", True))
    results.record(Reported("cy", KEY + " cy", "naive_all_reduce", True))
    standing = results.standing(COURSE)
    assert standing["where"] == {"ada": "halving_doubling"}
    assert (standing["holdup"], standing["lessons"]["02"][1]["on_it"]) == ("halving_doubling", 1)


def test_what_came_out_is_shown_when_it_is_revealed_and_is_the_rooms_median(tmp_path: Path) -> None:
    asked = {"ring_speedup": "How much faster?"}
    room = Room(tmp_path / "class.sqlite", predictions={"ring_speedup": "times"}, questions=asked)
    own = {"nickname": "ada", "key": KEY, "guess": "ring_speedup"}
    room.guess({**own, "value": 4, "unit": ""})
    with pytest.raises(ConfigError, match="nobody's machine has measured it yet"):
        room.reveal("ring_speedup")
    assert room.instructors_view(COURSE)["came_out"] is None
    for number, value in enumerate([3.5, 3.4, 90.0]):
        learner = {"nickname": f"table {number}", "key": f"{KEY} {number}"}
        room.measured({**learner, "guess": "ring_speedup", "value": value})
    assert room.standing(COURSE)["poll"]["came_out"] is None
    assert room.instructors_view(COURSE)["came_out"] == 3.5
    room.reveal("ring_speedup")
    assert room.standing(COURSE)["poll"]["came_out"] == 3.5
    with pytest.raises(ConfigError, match="does not ask for this guess"):
        room.measured({**own, "guess": "our_teacher_is_a_fool", "value": 1})
    room.close()


def test_who_is_long_at_one_exercise_and_does_not_ask_is_told_to_the_instructor(tmp_path: Path) -> None:
    clock = [0.0]
    room = Room(tmp_path / "class.sqlite", now=lambda: clock[0])
    for name, at in (("ada", 0), ("bo", 60), ("cy", 100), ("di", 300)):
        clock[0] = at
        room.record(Reported(name, f"{KEY} of {name}", "naive_all_reduce", False, mistake="sends_nothing_back"))
    room.say({"nickname": "bo", "key": f"{KEY} of bo", "what": "help"})
    clock[0] = 720
    view = room.instructors_view(COURSE)
    assert [each[:2] for each in view["stuck"]] == [("ada", 720), ("cy", 620)]  # bo asks, di is not long there
    assert view["stuck"][0][2:] == ("naive_all_reduce", "sends_nothing_back")
    assert view["mistakes"] == {"naive_all_reduce": [("sends_nothing_back", ["ada", "bo", "cy", "di"])]}
    assert room.standing(COURSE)["help_at"] == {"naive_all_reduce": 1}
    room.close()


def test_learners_are_in_the_order_people_count(results: Results) -> None:
    for name in ("table 10", "Zoe", "table 2", "2"):
        results.record(Reported(name, f"{KEY} of {name}", "naive_all_reduce", True))
    assert list(results.standing(COURSE)["learners"]) == ["2", "table 2", "table 10", "Zoe"]


def test_a_nickname_belongs_to_the_key_it_came_with(results: Results) -> None:
    results.record(Reported("ada", KEY, "naive_all_reduce", True))
    with pytest.raises(ConfigError, match="somebody else in this class is called 'ada'"):
        results.record(Reported("ada", "another-key", "naive_all_reduce", False))
    assert results.standing(COURSE)["learners"] == {"ada": {"naive_all_reduce": [1, 1]}}


@pytest.mark.in_turn
def test_a_full_board_says_so(results: Results) -> None:
    for number in range(MOST_LEARNERS):
        results.record(Reported(f"learner {number}", f"{KEY} {number}", "naive_all_reduce", True))
    with pytest.raises(ConfigError, match=r"is full: it holds 1000 learners"):
        results.record(Reported("one more", f"{KEY} more", "naive_all_reduce", True))


def test_a_key_has_one_seat_wherever_it_comes_from(results: Results) -> None:
    results.record(Reported("ada", KEY, "naive_all_reduce", True), "10.0.0.7")
    with pytest.raises(ConfigError, match="you joined this class as 'ada'"):
        results.record(Reported("bob", KEY, "naive_all_reduce", True), "10.0.0.8")
    results.record(Reported("ada", KEY, "count_bytes", True), "10.0.0.9")


@pytest.mark.in_turn
def test_seats_that_one_machine_fills_are_given_to_who_comes(tmp_path: Path) -> None:
    room = Room(tmp_path / "class.sqlite")
    room.record(Reported("ada", KEY, "naive_all_reduce", False), "10.0.0.7")
    for number in range(MOST_LEARNERS + 5):
        body = {"nickname": f"bot {number}", "key": f"{KEY} {number}", "guess": "ring_speedup", "value": 1, "unit": ""}
        room.guess(body, "10.0.0.7")
    room.record(Reported("grace", f"{KEY} grace", "naive_all_reduce", True), "10.0.0.7")
    standing = room.standing(COURSE)
    assert len(standing["learners"]) == MOST_LEARNERS
    assert {"ada", "grace"} <= set(standing["learners"]) and "bot 0" not in standing["learners"]
    assert len(standing["poll"]["values"]) == MOST_LEARNERS - 2  # whoever lost a seat has no say
    room.say({"nickname": "bot 0", "key": f"{KEY} 0", "what": "help"}, "10.0.0.7")  # and takes another
    assert room.standing(COURSE)["help"] == 1
    room.close()


def test_a_file_of_another_program_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE photos (name TEXT)")
        other.commit()
    before = path.read_bytes()
    with pytest.raises(EnvironmentProblem, match=r"is another program's database \(it has the tables photos\)"):
        Results(path)
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["photos.db"]


def test_the_file_with_the_instructors_link_is_nobody_elses_to_read(tmp_path: Path) -> None:
    Room(tmp_path / "class.sqlite").close()
    assert all(each.stat().st_mode & 0o077 == 0 for each in tmp_path.iterdir())


def test_only_what_the_course_asks_for_comes_onto_the_wall(tmp_path: Path) -> None:
    asked = {"ring_speedup": "How much faster?"}
    room = Room(tmp_path / "class.sqlite", predictions={"ring_speedup": "times"}, questions=asked)
    own = {"nickname": "ada", "key": KEY}
    room.guess({**own, "guess": "ring_speedup", "value": 4, "unit": "<b>x</b>"})
    for wrong in (
        {"guess": "our_teacher_is_a_fool", "value": 1, "unit": ""},
        {"guess": "ring_speedup", "value": "so true \u202e", "unit": ""},
        {"guess": "ring_speedup", "value": "a sentence that is longer than a word", "unit": ""},
    ):
        with pytest.raises(ConfigError):
            room.guess({**own, **wrong})
    poll = {"guess": "ring_speedup", "asked": "How much faster?", "unit": "times", "values": [4], "came_out": None}
    assert room.standing(COURSE)["poll"] == poll
    room.close()


def test_a_restart_goes_on_with_the_same_class(tmp_path: Path) -> None:
    first = Results(tmp_path / "class.sqlite")
    first.record(Reported("ada", KEY, "naive_all_reduce", True))
    first.close()
    again = Results(tmp_path / "class.sqlite")
    assert again.token == first.token
    assert again.standing(COURSE)["learners"] == {"ada": {"naive_all_reduce": [1, 1]}}
    again.close()


def test_what_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but somebody's notes\n" * 50)
    with pytest.raises(EnvironmentProblem, match=r"notes\.txt.*choose another file with --results"):
        Results(path)
    assert path.read_text().startswith("not a database")


def test_no_column_could_hold_code(tmp_path: Path) -> None:
    Results(tmp_path / "class.sqlite").close()
    with sqlite3.connect(tmp_path / "class.sqlite") as base:
        columns = {row[0] for table in ("learner", "seat", "result") for row in base.execute(
            "SELECT name FROM pragma_table_info(?)", (table,))}  # fmt: skip
    base.close()
    assert columns == {"nickname", "key_hash", "address", "exercise", "passed", "tries", "first_s", "last_s"}


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"passed": 1}, "passed must be true or false"),
        ({"key": "short"}, "8 to 64"),
        ({"key": None}, "8 to 64"),
        ({"nickname": ""}, "1 to 24 printable"),
        ({"nickname": "x" * 25}, "1 to 24 printable"),
        ({"nickname": "two\nlines"}, "1 to 24 printable"),
        ({"nickname": " ada"}, "no space at either end"),
        ({"nickname": ["ada"]}, "1 to 24 printable"),
        ({"exercise": "2.1"}, "no such exercise"),
        ({"exercise": 2.1}, "no such exercise"),
        ({"exercise": ["2.1"]}, "no such exercise"),
        ({"exercise": {}}, "no such exercise"),
        ({"key": "eight\ud800 letters"}, "printable"),
        ({"code": "print(1)"}, "no others"),
    ],
    ids=str,
)
def test_what_is_no_result_is_refused(change: dict[str, object], why: str) -> None:
    good: dict[str, object] = {"nickname": "ada", "key": KEY, "exercise": "naive_all_reduce", "passed": True}
    assert reported(good, COURSE) == Reported("ada", KEY, "naive_all_reduce", True)
    with pytest.raises(ConfigError, match=why):
        reported(good | change, COURSE)


def test_the_instructors_view_asks_for_everybodys_results_once(tmp_path: Path) -> None:
    with closing(Room(tmp_path / "class.sqlite", now=lambda: 1e6)) as room:
        room.record(Reported("ada", KEY + " ada", "naive_all_reduce", False))
        asked: list[str] = []
        room._base.set_trace_callback(asked.append)
        view = room.instructors_view(COURSE)
        assert sum("FROM result" in each for each in asked) == 1
        room._base.set_trace_callback(None)
        assert {each: view[each] for each in room.standing(COURSE)} == room.standing(COURSE)
