"""What a lesson takes is computed, said in its head, and held below the limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.lessons.budget import Budget, budget, keeps_its_promise
from labkit.lessons.build import build, check
from labkit.lessons.source import Lesson, parse

pytestmark = pytest.mark.in_turn

PATH = "solutions/03_words.py"


def exercise(slug: str, minutes: int, more: str = "") -> str:
    header = (
        f'exercise="{slug}" points=1 difficulty=1 importance=1 minutes={minutes} title="T" provides=["{slug}"]{more}'
    )
    return (
        f'# %% tags=["exercise"] {header}\ndef {slug}():\n'
        f"    # BEGIN SOLUTION {slug}\n    return 1\n    # END SOLUTION\n\n"
        f'# %% tags=["check"]\nlabkit.check("{slug}", {slug})\n\n'
    )


STOP = '# %% [markdown] tags=["stop"]\n# **A good place to stop.** [[minutes]] minutes are left.\n\n'


def prose(text: str) -> str:
    return f"# %% [markdown]\n# {text}\n\n"


def lesson_of(*cells: str) -> Lesson:
    return parse(prose("# Words") + "".join(cells), PATH)


def test_minutes_are_reading_code_guesses_exercises_questions_and_runs() -> None:
    found = budget(
        lesson_of(
            prose(" ".join(["word"] * 359)),  # with the title, 360: 2 minutes
            '# %% tags=["given"]\nimport torch\n\nimport labkit\n\n',
            "# %% seconds=30\n1 + 1\n\n",
            '# %% tags=["predict"]\nlabkit.predict("how_many", 2)\n\n',
            exercise("first", 4),
            '# %% tags=["why"] exercise="if_doubled" title="Twice the ranks"\nlabkit.answer("if_doubled", 2.0)\n',
        )
    )
    assert (found.words, found.code_lines, found.guesses, found.exercises, found.questions) == (360, 3, 1, 1, 1)
    assert found.minutes == pytest.approx(2 + 0.3 + 1.5 + 4 + 1 + 0.5)
    assert found.promise == "10"


def test_the_core_ends_at_the_heading_above_the_first_bonus() -> None:
    with_bonus = lesson_of(exercise("first", 4), prose("## More\n#\n# a b c"), exercise("more", 9, " bonus=true"))
    alone = budget(lesson_of(exercise("first", 4)))
    found = budget(with_bonus)
    assert (found.words, found.cells, found.minutes) == (alone.words, alone.cells, alone.minutes)
    assert found.bonus == 9 and found.is_last


def test_an_exercise_of_the_core_below_a_bonus_is_told() -> None:
    found = budget(lesson_of(exercise("more", 9, " bonus=true"), exercise("first", 4)))
    assert "a core exercise comes after a bonus exercise" in list(found.excesses())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("words", "1,801 words of prose, and the limit is 1,800"),
        ("code_lines", "81 lines of given code"),
        ("cells", "91 cells"),
        ("exercises", "7 exercises"),
        ("declared", "76 minutes, and the limit is 75"),
    ],
)
def test_more_than_a_lesson_holds_is_told(name: str, says: str) -> None:
    most = {"words": 1800, "code_lines": 80, "cells": 90, "exercises": 6, "declared": 75}
    empty = dict.fromkeys(
        ("words", "code_lines", "cells", "exercises", "questions", "guesses", "declared", "runs_s"), 0
    )
    assert not list(Budget(**{**empty, name: most[name] if name != "words" else 0}, bonus=0, is_last=True).excesses())
    (why,) = Budget(**{**empty, name: most[name] + 1}, bonus=0, is_last=True).excesses()
    assert says in why


def test_each_sitting_keeps_to_the_limit_and_a_stop_divides_the_core() -> None:
    tasks = [exercise("first", 70), exercise("second", 71)]
    (why,) = budget(lesson_of(*tasks)).excesses()
    assert why == "its core has 141 minutes, and the limit is 75"
    found = budget(lesson_of(tasks[0], STOP, tasks[1]))
    assert not list(found.excesses())
    assert [round(each) for each in found.sittings] == [70, 71] and found.promise == "75 + 75"
    assert sum(found.sittings) == pytest.approx(found.minutes)
    (why,) = budget(lesson_of(tasks[0], STOP, tasks[1], exercise("third", 5))).excesses()
    assert why == "a sitting has 76 minutes, and the limit is 75"


def test_what_a_stop_says_is_no_prose_and_a_stop_in_the_bonus_divides_nothing() -> None:
    assert budget(lesson_of(STOP, exercise("first", 4))).words == budget(lesson_of(exercise("first", 4))).words
    with_bonus = lesson_of(exercise("first", 4), prose("## More"), STOP, exercise("more", 9, " bonus=true"))
    assert len(budget(with_bonus).sittings) == 1


def test_head_and_stop_say_the_minutes_of_each_sitting_and_what_is_left() -> None:
    head = prose("**Time:** [[minutes]] minutes (two sittings)")
    lesson = lesson_of(head, exercise("first", 4), STOP, exercise("second", 14))
    assert "**Time:** 5 + 15 minutes (two sittings)" in lesson.cells[1].student_source
    (stop,) = (cell for cell in lesson.cells if cell.role == "stop")
    assert stop.student_source == "**A good place to stop.** 15 minutes are left."
    assert keeps_its_promise(lesson)
    assert not keeps_its_promise(lesson_of(prose("**Time:** [[minutes]] minutes"), exercise("first", 4), STOP))


def test_the_head_promises_what_was_computed_and_ids_do_not_hang_on_it() -> None:
    head = prose("**Time:** [[minutes]] minutes")
    short, long = lesson_of(head, exercise("first", 4)), lesson_of(head, exercise("first", 14))
    assert "**Time:** 5 minutes" in short.cells[1].student_source
    assert "**Time:** 15 minutes" in long.cells[1].student_source
    assert short.cells[1].id == long.cells[1].id


def test_build_prints_what_a_lesson_takes(course: Path) -> None:
    assert "takes 5 min (" in str(build(course, execute=False))


def test_check_fails_past_the_limits_and_without_a_promise(course: Path) -> None:
    path = course / "solutions" / "03_mean_over_ranks.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("minutes=3", "minutes=105"), encoding="utf-8")
    build(course, execute=False)
    assert any("and the limit is 75" in str(drift) for drift in check(course))
    path.write_text(text.replace("[[minutes]]", "some"), encoding="utf-8")
    build(course, execute=False)
    assert any("does not say how long it takes" in str(drift) for drift in check(course))
