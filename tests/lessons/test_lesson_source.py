"""A source becomes typed cells and exercises; every mistake is named by file and line, with a cure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labkit.errors import LessonError
from labkit.lessons.course import predictions_and_questions
from labkit.lessons.manifest import Exercise
from labkit.lessons.prediction_cell import without_guess
from labkit.lessons.source import Lesson, load, parse

LESSONS = sorted((Path(__file__).parents[2] / "solutions").glob("[0-9][0-9]_*.py"))
PATH = "solutions/03_mean_over_ranks.py"
HEADER = 'exercise="halve" points=1 difficulty=1 importance=1 minutes=1 title="T" provides=["f"]'
BODY = "def f():\n    # BEGIN SOLUTION halve\n    return 1\n    # END SOLUTION\n"

ROOT = Path(__file__).parents[2]


def lesson_of(cells: str) -> Lesson:
    return parse(f"# %% [markdown]\n# # Title\n\n{cells}", PATH)


def exercise_cell(header: str = HEADER, body: str = BODY) -> str:
    return f'# %% tags=["exercise"] {header}\n{body}'


def test_exercises_are_read_in_order_with_every_attribute(source_text: str) -> None:
    lesson = parse(source_text, PATH)
    assert lesson.name == "03_mean_over_ranks"
    assert lesson.title == "Mean over ranks"
    assert lesson.exercises == (
        Exercise("mean_and_spread", "Mean and spread", ("mean", "Spread"), 4, 1, 4, 3, number="3.1"),
        Exercise("mean_over_ranks", "Mean over ranks", ("mean_over_ranks",), 6, 2, 5, 5, bonus=True, number="3.2"),
    )
    assert lesson.manifest.points == 4  # bonus points come on top


def test_ids_come_from_slugs_and_names_and_are_unique_for_equal_cells(source_text: str) -> None:
    ids = [cell.id for cell in parse(source_text, PATH).cells]
    assert len(set(ids)) == len(ids)
    assert {"exercise-mean-and-spread", "check-mean-over-ranks", "predict-guess-mean", "parameters"} <= set(ids)
    assert sum(each.startswith("given-1-") for each in ids) == 1
    assert sum(each + "-2" in ids for each in ids) == 1  # the note that stands there twice


def test_ids_are_the_same_every_time_and_do_not_move_when_other_prose_does(source_text: str) -> None:
    before = [cell.id for cell in parse(source_text, PATH).cells]
    assert [cell.id for cell in parse(source_text, PATH).cells] == before
    edited = source_text.replace("Run each cell from top", "Run every cell from top")
    after = [cell.id for cell in parse(edited, PATH).cells]
    assert len(set(before) - set(after)) == 1


def test_lines_are_those_of_the_file_even_below_a_quoted_cell_marker() -> None:
    lesson = lesson_of('# %%\ntext = """\n# %% not a cell\n"""\n\n# %%\n1 + 1\n')
    assert [cell.line for cell in lesson.cells] == [1, 4, 9]


def test_blank_lines_between_cells_do_not_matter() -> None:
    spaced = lesson_of('# %% tags=["given"]\nimport math\n\n\n\n# %%\nmath.pi\n')
    assert [cell.source.strip() for cell in spaced.cells[1:]] == ["import math", "math.pi"]


WRONG = {
    "unknown tag": (
        '# %% tags=["excercise"]\n1\n',
        r"03_mean_over_ranks\.py:4: unknown tag 'excercise' \(did you mean 'exercise'\?\); known tags: parameters",
    ),
    "two roles": ('# %% tags=["given", "check"]\n1\n', r":4: tags given and check exclude each other; keep one"),
    "code tag on prose": ('# %% [markdown] tags=["given"]\n# a\n', r":4: tag 'given' on a markdown cell"),
    "END without BEGIN": (
        exercise_cell(body="def f():\n    return 1\n    # END SOLUTION\n"),
        r":7: END SOLUTION without a BEGIN SOLUTION before it",
    ),
    "BEGIN without END": (
        exercise_cell(body="def f():\n    # BEGIN SOLUTION halve\n    return 1\n"),
        r":6: BEGIN SOLUTION without an END SOLUTION in the same cell",
    ),
    "BEGIN inside BEGIN": (
        exercise_cell(body="def f():\n    # BEGIN SOLUTION halve\n    # BEGIN SOLUTION halve\n    # END SOLUTION\n"),
        r":7: BEGIN SOLUTION before the one 1 lines? above has its END SOLUTION",
    ),
    "nothing between": (
        exercise_cell(body="def f():\n    # BEGIN SOLUTION halve\n    # END SOLUTION\n"),
        r":6: BEGIN and END SOLUTION with no answer between them",
    ),
    "marker with a recipe": (
        exercise_cell(body="def f():\n    # BEGIN SOLUTION halve: do it\n    return 1\n    # END SOLUTION\n"),
        r":6: .*looks like a marker; write `# BEGIN SOLUTION chunk_bounds`",
    ),
    "marker of another exercise": (
        exercise_cell(body=BODY.replace("halve", "third")),
        r":6: BEGIN SOLUTION third in the cell of exercise halve; use the same name in both",
    ),
    "marker in a cell without the tag": (
        "# %%\ndef f():\n    # BEGIN SOLUTION halve\n    return 1\n    # END SOLUTION\n",
        r":6: a SOLUTION marker in a cell that is not tagged exercise; tag the cell",
    ),
    "no id": (exercise_cell('points=1 title="T"'), r':4: an exercise cell without an id; add exercise="chunk_bounds"'),
    "no points": (exercise_cell(HEADER.replace("points=1 ", "")), r":4: exercise halve without points; add points=6"),
    "misspelt attribute": (
        exercise_cell(HEADER.replace("points", "point")),
        r":4: unknown attribute 'point' .*did you mean 'points'",
    ),
    "id without quotes": (
        exercise_cell(HEADER.replace('"halve"', "3.2")),
        r":4: exercise 3\.2 has exercise=3\.2; write exercise=\"chunk_bounds\"",
    ),
    "points in quotes": (exercise_cell(HEADER.replace("=1 d", '="1" d')), r"has points='1'; write points=6"),
    "a number for a key": (
        exercise_cell(HEADER.replace("halve", "3.2")),
        r"exercise '3\.2'; write a slug such as",
    ),
    "need that comes later": (
        exercise_cell(HEADER + ' needs=["third"]'),
        r":4: exercise halve needs 'third', which is not above it; above are none",
    ),
    "reference to nothing": (
        "# %% [markdown]\n# One line.\n#\n# As in [[halvé]] and [[havle]].\n\n" + exercise_cell(),
        r":7: \[\[halvé\]\] names no exercise or lesson of the course \(did you mean \[\[halve\]\]\?\)",
    ),
    "heading of nothing": (
        "# %% [markdown]\n# ### Exercise [[third]]\n",
        r":5: \[\[third\]\] names no exercise or lesson of the course",
    ),
    "duplicate id": (
        exercise_cell() + "\n" + exercise_cell(),
        r":10: a second exercise halve; each needs its own slug",
    ),
    "broken header": ('# %% tags=["exercise" points=3\n1\n', r":4: cannot read .* in the cell's header"),
    "answer outside markers": (
        exercise_cell(HEADER.replace('["f"]', '["f", "g"]'), BODY + "\n\ndef g():\n    return 2\n"),
        r":11: the answer of g is outside the markers; enclose it in `# BEGIN SOLUTION halve",
    ),
    "private answer outside markers": (
        exercise_cell(body=BODY + "\n\ndef _part():\n    return 2\n"),
        r":11: the answer of _part is outside the markers",
    ),
    "nothing cut": (exercise_cell(body="def f():\n    return 1\n"), r":5: the answer of f is outside the markers"),
    "signature cut": (
        exercise_cell(body="# BEGIN SOLUTION halve\ndef f():\n    return 1\n# END SOLUTION\n"),
        r":6: the markers cut f with its signature; put them inside the function",
    ),
    "provides what is not there": (
        exercise_cell(HEADER.replace('["f"]', '["g"]')),
        r":5: exercise halve provides 'g', but its cell defines f",
    ),
    "cut leaves no program": (
        exercise_cell(
            body="def f():\n    try:\n        pass\n    # BEGIN SOLUTION halve\n    finally:\n"
            "        pass\n    # END SOLUTION\n"
        ),
        r":5: the cell does not parse once its answers are cut .*; move the markers",
    ),
    "syntax error": ("# %%\nx = 1\ny = = 2\n", r":6: syntax error: invalid syntax"),
    "magic in a given cell": ('# %% tags=["given"]\n# %matplotlib inline\n', r":5: .*works in a notebook only"),
    "side effect in a given cell": (
        '# %% tags=["given"]\nimport math\nprint(math.pi)\n',
        r":6: `print\(math\.pi\)` in a cell of definitions .* Move it",
    ),
    "prediction of a formula": (
        '# %% tags=["predict"]\nguess = 1 / x\n',
        r":5: a predict cell is one assignment of a l",
    ),
    "guess that is called as an exercise is": (
        exercise_cell() + '\n# %% tags=["predict"]\nlabkit.predict("halve", 2)\n',
        r":10: a guess called 'halve', as an exercise is; call it by what is guessed",
    ),
    "prediction by call of a formula": (
        '# %% tags=["predict"]\nlabkit.predict("step_ms", 1 / x, unit="ms")\n',
        r":5: a predict cell is one assignment of a literal, .* or one call with literals, such as `labkit\.predict",
    ),
    "prediction of a number": ('# %% tags=["predict"]\nlabkit.predict("3.1", 2)\n', r":5: a predict cell is one"),
    "two predictions of one name": (
        '# %% tags=["predict"]\nguess = 1\n\n# %% tags=["predict"]\nguess = 2\n',
        r":7: a second cell would have the id predict-guess",
    ),
    "check of nothing": ('# %% tags=["check"]\n1 + 1\n', r":4: a check cell checks one exercise.*this one: none"),
    "check above its exercise": (
        '# %% tags=["check"]\nlabkit.check("halve", f)\n\n' + exercise_cell(),
        r":4: a check of exercise halve, which is not above it",
    ),
    "empty cell": ("# %%\n\n# %%\n1\n", r":4: an empty cell; remove its header"),
    "attribute on a plain cell": (
        "# %% points=3\n1\n",
        r":4: unknown attribute 'points' in the header of a plain cell",
    ),
    "raw cell": ("# %% [raw]\n# a\n", r":4: a cell of type 'raw'"),
}


@pytest.mark.in_turn
@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_named_by_file_and_line_with_a_cure(mistake: str) -> None:
    cells, message = WRONG[mistake]
    with pytest.raises(LessonError, match=message):
        lesson_of(cells)


def test_text_before_the_first_header_is_refused() -> None:
    with pytest.raises(LessonError, match="text before the first"):
        parse("import math\n\n# %% [markdown]\n# # Title\n", PATH)


def test_a_lesson_without_a_heading_is_refused() -> None:
    with pytest.raises(LessonError, match="no title"):
        parse("# %%\n1\n", PATH)


def test_a_file_that_is_not_named_by_number_is_refused() -> None:
    with pytest.raises(LessonError, match=r"use NN_slug\.py"):
        parse("# %% [markdown]\n# # Title\n", "solutions/ring.py")


def test_a_text_without_a_file_needs_no_number() -> None:
    assert parse("# %% [markdown]\n# # Title\n" + "\n" + exercise_cell()).exercises[0].id == "halve"


@pytest.mark.in_turn
def test_a_learner_writes_every_guess_where_none_stands() -> None:
    sources = {
        'labkit.predict("step_ms", 0.5, unit="ms")': 'labkit.predict("step_ms", None, unit="ms")',
        '# größer?\nlabkit.predict("step_ms", -1.5)  # é': '# größer?\nlabkit.predict("step_ms", None)  # é',
        'labkit.predict(\n    "backend",\n    "gloo",\n)': 'labkit.predict(\n    "backend",\n    None,\n)',
        "guess = 0.5": "guess = 0.5",  # other cells read that name
    }
    for source, learners in sources.items():
        assert without_guess(source) == learners
    given = [cell.student_source for path in LESSONS for cell in load(path).cells if cell.role == "predict"]
    assert len(given) > 30
    empty = re.compile(r'labkit\.predict\("\S+", None(, unit="[^"]+")?\)')
    assert not [source for source in given if not empty.fullmatch(source)]


RETOLD = """# %% [markdown]
# # Title
#
# ### Exercise [[halve]]
#
# Then [[third]]; both are of lesson [[thirds]].

"""


def _third() -> str:
    return exercise_cell(
        HEADER.replace("halve", "third").replace('"T"', '"A third"') + " bonus=true", BODY.replace("halve", "third")
    )


def test_references_become_numbers_and_another_number_renames_nothing() -> None:
    first = parse(f"{RETOLD}{exercise_cell()}\n{_third()}", "solutions/03_thirds.py")
    assert first.cells[0].source == "# Title\n\n### Exercise 3.1 T\n\nThen 3.2; both are of lesson 03."
    moved = parse(f"{RETOLD}{_third()}\n{exercise_cell()}", "solutions/11_thirds.py")
    assert moved.cells[0].source == "# Title\n\n### Exercise 11.2 T\n\nThen 11.1; both are of lesson 11."
    assert {cell.id for cell in first.cells} == {cell.id for cell in moved.cells}
    assert 'NotImplementedError("Exercise 11.2: T")' in moved.cells[2].student_source


def test_a_heading_says_that_an_exercise_is_a_bonus() -> None:
    text = RETOLD.replace("[[halve]]", "[[third]]").replace("Then [[third]]", "Then")
    assert "### Exercise 3.1 A third (bonus)\n" in parse(f"{text}{_third()}", "solutions/03_thirds.py").cells[0].source


def test_references_reach_the_lessons_beside_and_no_key_stands_twice(tmp_path: Path) -> None:
    (tmp_path / "03_halves.py").write_text(f"# %% [markdown]\n# # Halves\n\n{exercise_cell()}", encoding="utf-8")
    other = tmp_path / "12_thirds.py"
    other.write_text(f"# %% [markdown]\n# # [[thirds]] after [[halve]] of [[halves]]\n\n{_third()}", encoding="utf-8")
    assert load(other).title == "12 after 3.1 of 03"
    other.write_text(f"# %% [markdown]\n# # Thirds\n\n{exercise_cell()}", encoding="utf-8")
    with pytest.raises(LessonError, match="03_halves and 12_thirds both use the key 'halve'"):
        load(other)


def test_the_question_before_each_guess_is_found_for_the_board(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    read_text = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, **how: (reads.append(path), read_text(path, **how))[1])
    predictions, asked = predictions_and_questions(ROOT)
    notebooks = [each for each in reads if each.suffix == ".ipynb"]
    assert len(notebooks) == len(set(notebooks)) == len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    assert asked["all_reduce_ms"] == "An all_reduce of 100 MB on eight H100s: how many milliseconds?"
    assert asked["sum_each_sees"] == "What sum does each of them get?"  # a remark in brackets stands behind it
    assert set(predictions) - set(asked) == {"ddp_memory"}  # two guesses at one question
    assert all(each.endswith("?") and not set("*`#") & set(each) for each in asked.values())
