"""A talk is made of what a lesson holds already: slides, pictures, exercises, and its prose as notes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from markupsafe import escape

import labkit
from labkit.checks import predictions
from labkit.errors import LessonError
from labkit.lessons.executed import unexecuted
from labkit.lessons.lesson import Lesson
from labkit.lessons.outputs_now import as_drawn_now
from labkit.lessons.presentation import (
    CLOSING,
    Part,
    Slide,
    Workshop,
    closing_last,
    lesson_slides,
    read_workshop,
    workshop_slides,
)
from labkit.lessons.reveal import as_html, deck_html
from labkit.lessons.room_questions import to_be_found
from labkit.lessons.shown import shown_notebook
from labkit.lessons.source import load, parse
from labkit.lessons.student import student_notebook
from labkit.lessons.write_cell import PLACEHOLDER

SOLUTIONS = Path(__file__).parents[2] / "solutions"


WITH_PICTURES = ("## Follow chunk A round the ring", "## Right, and slow")


@pytest.fixture(scope="module")
def ring() -> tuple[Lesson, list[Slide]]:
    lesson = load(SOLUTIONS / "02_ring_all_reduce.py")
    return lesson, lesson_slides(lesson, shown_notebook(lesson, SOLUTIONS / "02_ring_all_reduce.ipynb"))


def test_every_exercise_and_every_tagged_cell_is_a_slide(ring: tuple[Lesson, list[Slide]]) -> None:
    lesson, slides = ring
    assert [slide.exercise for slide in slides if slide.exercise] == [each.id for each in lesson.exercises]
    tagged = [cell for cell in lesson.cells if {"slide", "slide-only"} & set(cell.tags)]
    stands = [cell.student_source for cell in tagged if not cell.student_source.startswith(WITH_PICTURES)]
    assert [slide.body for slide in slides if slide.kind == "prose"] == stands and len(tagged) == len(stands) + 2
    assert slides[0].body.startswith("# 02 Ring all-reduce")


def test_pictures_are_slides_and_checks_and_answers_are_not(ring: tuple[Lesson, list[Slide]]) -> None:
    figures = [slide.body for slide in ring[1] if slide.kind == "figure"]
    assert len(figures) >= 6
    assert all(body.startswith(("<img", "<div")) for body in figures)
    assert all(slide.title for slide in ring[1] if slide.kind == "figure")
    text = "\n".join(slide.body for slide in ring[1] if slide.kind != "figure")
    assert "passed, all" not in text and "BEGIN SOLUTION" not in text


def test_what_an_exercise_needs_stands_before_it(ring: tuple[Lesson, list[Slide]]) -> None:
    texts = [f"{slide.title}\n{slide.body}" for slide in ring[1]]
    order = (
        "Follow chunk A round the ring\n",
        "## Write down what happens",
        "2.3 The ring",
        "## Send and receive",
        "2.4 Run",
    )
    places = [next(at for at, text in enumerate(texts) if words in text) for words in order]
    assert places == sorted(places)


def test_a_picture_that_is_too_fine_for_a_room_is_no_slide(ring: tuple[Lesson, list[Slide]]) -> None:
    lesson, slides = ring
    notebook = shown_notebook(lesson, SOLUTIONS / "02_ring_all_reduce.ipynb")
    cells = tuple(
        replace(each, tags=(*each.tags, "no-slide")) if each.kind == "code" else each for each in lesson.cells
    )
    without = lesson_slides(replace(lesson, cells=cells), notebook)
    bodies = [each.body for each in without if not each.body.startswith(WITH_PICTURES)]  # no picture to stand with
    assert bodies == [each.body for each in slides if each.kind != "figure"] and len(without) == len(bodies) + 2


def test_the_prose_between_slides_is_what_the_speaker_says(ring: tuple[Lesson, list[Slide]]) -> None:
    lesson, slides = ring
    told = {note for slide in slides for note in slide.notes}
    prose = [
        cell
        for cell in lesson.cells
        if cell.kind == "markdown" and not {"slide", "slide-only", "stop"} & set(cell.tags)
    ]
    assert len(prose) > 20 and {cell.student_source for cell in prose[1:]} <= told  # the head stands before its slide


def test_where_a_learner_may_stop_is_nothing_for_a_room(ring: tuple[Lesson, list[Slide]]) -> None:
    lesson, slides = ring
    assert any(cell.role == "stop" for cell in lesson.cells)
    assert "place to stop" not in "\n".join(text for slide in slides for text in (slide.body, *slide.notes))


def test_an_exercise_is_told_with_what_its_docstring_asks_and_without_an_answer(
    ring: tuple[Lesson, list[Slide]],
) -> None:
    (slide,) = (slide for slide in ring[1] if slide.exercise == "chunk_bounds")
    (asked,) = (note for note in slide.notes if note.startswith("`chunk_bounds`"))
    assert "numel: Number of elements" in asked and "return" not in asked


def test_a_short_task_goes_on_with_the_next_sentence_of_its_docstring(ring: tuple[Lesson, list[Slide]]) -> None:
    bodies = {slide.exercise: slide.body for slide in ring[1] if slide.exercise}
    assert "chunks. Steps 0 to N-2 are the reduce-scatter, steps N-1 to 2N-3 the all-gather.\n" in bodies["ring_plan"]
    assert "Args" not in "".join(bodies.values())  # and where the next is about what is given, nothing follows
    assert re.search(r"passes through rank 0\.\n\n\*\*6 minutes", bodies["naive_all_reduce"])
    assert re.search(r"ring_plan and run_plan\.\n\n\*\*5 minutes", bodies["ring_sum"])


def test_of_several_functions_a_slide_says_little_and_its_speaker_all() -> None:
    lesson = load(SOLUTIONS / "06_parameter_server.py")
    slides = lesson_slides(lesson, shown_notebook(lesson, SOLUTIONS / "06_parameter_server.ipynb"))
    (slide,) = (each for each in slides if each.exercise == "server_or_ring")
    assert "* `server_seconds(…)`\\\n  Return the time of one synchronous step.\n" in slide.body
    assert "* `largest_share(num_workers, num_servers)`\\\n" in slide.body  # a call that one line holds
    assert any("step: all workers push their gradient, then all get the weights." in note for note in slide.notes)


def test_the_slide_of_what_is_written_asks_its_question() -> None:
    lesson = load(SOLUTIONS / "08_pipeline.py")
    slides = lesson_slides(lesson, shown_notebook(lesson, SOLUTIONS / "08_pipeline.ipynb"))
    (slide,) = (slide for slide in slides if slide.exercise == "four_or_eight_stages")
    assert "or four of eight? Give both bubbles" in slide.body  # how to answer is said in the notebook
    assert "labkit.lend" not in slide.body and len(slide.body.split()) < 65 and "32 GPUs" in slide.body
    assert PLACEHOLDER not in slide.body and "3/11" not in slide.body


def test_a_deck_names_what_its_notebook_calls_yours() -> None:
    lesson = load(SOLUTIONS / "08_pipeline.py")
    slides = lesson_slides(lesson, shown_notebook(lesson, SOLUTIONS / "08_pipeline.ipynb"))
    explorers = [slide.body for slide in slides if "labkit.scheduleExplorer" in slide.body]
    names = [re.findall(r'"name":"([^"]+)"', body) for body in explorers]
    assert names == [["1F1B", "GPipe in groups of 4"], ["GPipe", "1F1B"]]
    (named,) = (at for at, slide in enumerate(slides) if "<!-- called: yours, 1F1B -->" in slide.body)
    assert slides[named].body.startswith("## 1F1B: one forward, one backward") and slides[named + 1].body in explorers


def test_a_kept_timeline_holds_its_columns_and_no_line_of_code(ring: tuple[Lesson, list[Slide]]) -> None:
    runs = [json.loads(slide.runs) for slide in ring[1] if slide.runs]
    assert len(runs) >= 3 and max(map(len, runs)) == 2  # one is a comparison
    for run in (run for both in runs for run in both):
        assert re.search(r"^[48] ranks, |% of the time", run["title"]) and len(run["columns"]) > 100
        assert all(source == code == "" for *_, source, code in run["labels"])


def test_a_picture_is_titled_by_what_it_shows_and_a_comparison_is_shown_once(ring: tuple[Lesson, list[Slide]]) -> None:
    titles = [slide.title for slide in ring[1] if slide.kind == "figure"]
    assert "Rank 0 works; the others mostly wait" in titles  # in one line, without how many percent
    assert {"Eight ranks: bytes queue at rank 0", "Ring: bytes no longer queue at rank 0"} <= set(titles)
    assert not [title for title in titles if re.match(r"Exercise \d", title)]
    both = [slide.runs for slide in ring[1] if slide.runs and len(json.loads(slide.runs)) > 1]
    assert len(both) == len(set(both)) == 3  # and the ring beside one that is slower
    asked = {slide.question: f"{slide.answer} {slide.compared}" for slide in ring[1] if slide.question}
    faster = "Eight H100s, 16 MB each: how many times faster is the ring than going through rank 0?"
    longer = "With 16 MB each, how many times longer do eight ranks take than four?"
    assert (asked[faster], asked[longer]) == ("3.5 times faster", "2.3 times as long")
    assert re.search(r'"timeline-\d+"\), .*\);', deck_html(ring[1], "Ring"))


def test_a_recorded_run_is_titled_by_how_long_it_takes_or_by_what_the_room_is_asked_and_not_by_what_is_to_be_found(
    ring: tuple[Lesson, list[Slide]],
) -> None:
    at = next(at for at, slide in enumerate(ring[1]) if slide.exercise == "slow_ring")
    run = ring[1][at - 1]
    reference, own = json.loads(run.runs)
    assert (reference["name"], own["name"]) == ("ring", "a colleague's ring")
    assert run.title == f"A colleague's ring: {own['span'] / reference['span']:.1f} times as long" and not run.asks
    assert any("It never hangs" in note and "takes about twice as long" in note for note in run.notes)
    lesson = load(SOLUTIONS / "15_planner.py")
    slides = lesson_slides(lesson, shown_notebook(lesson, SOLUTIONS / "15_planner.ipynb"))
    html = deck_html([next(each for each in slides if each.asks)], "Planner")
    asks, picture = html.index('<div class="asks">'), html.index('<div class="picture">')
    assert html.index("The slowest stage sets the pace</h3>") < asks < picture


def test_a_slide_between_a_question_and_its_answer_is_not_what_is_asked() -> None:
    lesson = load(SOLUTIONS / "13_sharded_training.py")
    slides = lesson_slides(lesson, shown_notebook(lesson, SOLUTIONS / "13_sharded_training.ipynb"))
    bodies = {slide.exercise: slide.body for slide in slides if slide.exercise}
    assert "Which stage's memory per GPU changes least?" in bodies["most_saved"]
    lesson = load(SOLUTIONS / "16_when_machines_fail.py")
    slides = lesson_slides(lesson, shown_notebook(lesson, SOLUTIONS / "16_when_machines_fail.ipynb"))
    bodies = {slide.exercise: slide.body for slide in slides if slide.exercise}
    assert "* `rank`: which rank stopped?" in bodies["lost_time"]


def test_an_explorer_is_drawn_by_the_program_there_is_now_and_not_by_the_one_it_was_saved_with() -> None:
    figure = labkit.schedule_explorer()
    saved = figure.to_html()
    old = re.sub(r'(?s)(<script type="module">\n).*(figure\.start)', r"\1an old program;\n\2", saved)
    assert "an old program" in old and as_drawn_now(old) == saved


def test_a_question_to_the_room_and_the_minutes_of_an_exercise_have_places_of_their_own() -> None:
    asks, works = "## One\n\n**To the room:** who\nwaits?", "### Two\n\n101 ms\n\n**6 minutes** · 1 point"
    html = deck_html([Slide("prose", asks), Slide("exercise", works)], "A deck")
    assert '<p class="ask"><span>To the room</span><b>Who\nwaits?</b></p>' in html
    assert (
        '<p class="about"><span class="minutes"><strong>6 minutes</strong> · </span>1 point' in html
        and "<p>101\N{NO-BREAK SPACE}ms</p>" in html
    )
    assert "<p>rank\N{NO-BREAK SPACE}0 of 8" in deck_html([Slide("prose", "## One\n\nrank 0 of 8")], "A deck")


def test_a_room_is_asked_before_a_picture_answers(ring: tuple[Lesson, list[Slide]]) -> None:
    texts = [slide.body for slide in ring[1]]
    pictures = [at for at, slide in enumerate(ring[1]) if slide.kind == "figure"]
    (asked,) = (at for at, text in enumerate(texts) if "which rank works all the time" in text)
    assert asked + 1 in pictures  # and none of what it asks about stands before it
    slow = next(at for at, slide in enumerate(ring[1]) if slide.exercise == "slow_ring")
    assert max(at for at in pictures if at < slow) == slow - 1


def test_a_room_is_asked_beside_the_first_frame_of_the_story_that_answers(ring: tuple[Lesson, list[Slide]]) -> None:
    at = next(at for at, slide in enumerate(ring[1]) if slide.title == "Follow chunk A round the ring")
    first, answer = ring[1][at : at + 2]
    assert first.asks.endswith("**After which step is chunk A complete, and where?**") and not answer.asks
    assert any("Have the room say where A goes" in note for note in first.notes)
    begins = [re.search(r'"begin":(\d+)', each.body) for each in (first, answer)]
    assert [int(each[1]) for each in begins if each] == [0, 4]  # before step 0, and all steps at once
    marks = [re.findall(r'"(f[0-9a-f]+)"', each.body) for each in (first, answer)]
    assert len(set(marks[0])) == len(set(marks[1])) == 1 and set(marks[0]) != set(marks[1])  # two figures of a page


def test_a_run_to_stand_beside_that_no_slide_has_shown_is_told_to_the_author() -> None:
    asks = Slide("prose", "## Right, and slow\n\n<!-- beside: the ring, a colleague's -->")
    with pytest.raises(LessonError, match=r"^A slide asks for the run 'the ring' beside .*, but no slide before it"):
        to_be_found("", [asks], [Slide("figure", "<div>", runs='[{"name": "x", "span": 1}]')])


@pytest.mark.parametrize("name", ["02_ring_all_reduce", "08_pipeline", "11_faster_steps"])
def test_a_deck_ends_with_what_to_remember_and_calls_a_bonus_one(name: str) -> None:
    lesson = load(SOLUTIONS / f"{name}.py")
    slides = lesson_slides(lesson, shown_notebook(lesson, SOLUTIONS / f"{name}.ipynb"))
    ordered = closing_last(slides)
    assert ordered[-1].body.startswith(CLOSING) and sorted(map(id, ordered)) == sorted(map(id, slides))
    bonus = {each.id for each in lesson.exercises if each.bonus}
    called = {slide.exercise for slide in slides if slide.body.startswith("### Bonus: ")}
    assert bonus and called == bonus


def test_a_question_with_several_answers_is_a_list_and_its_number_stands_in_the_title_alone(
    ring: tuple[Lesson, list[Slide]],
) -> None:
    bodies = {slide.exercise: slide.body for slide in ring[1] if slide.exercise}
    assert "* `sent_mb`: how many MB" in bodies["slow_ring"] and "\n* `cause`: *a slow rank*, " in bodies["slow_ring"]
    assert "Zoom" not in bodies["slow_ring"] and "(" not in bodies["slow_ring"]  # what is in brackets is for who writes
    assert bodies["twice_the_ranks"].count("2.6") == 1


def _cells(slides: list[Slide], words: str) -> list[list[str]]:
    """Return the rows of the table on the slide that has these words, but for its head."""
    (body,) = (slide.body for slide in slides if words in slide.body)
    rows = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")]
    return rows[2:]


def test_numbers_in_a_deck_s_tables_are_those_of_its_formulas(ring: tuple[Lesson, list[Slide]]) -> None:
    *numbers, formulas = _cells(ring[1], "In a ring, every rank sends less than 2B")
    assert formulas == ["*N*", r"$(N-1)\,B$", r"$2(N-1)\,B/N$"]
    for row in numbers:
        ranks = int(row[0].replace(",", ""))
        root, own = (float(cell.removesuffix(" MB").replace(",", "")) for cell in row[1:])
        assert root == (ranks - 1) * 100 and own == round(200 * (ranks - 1) / ranks, 1) < 200
    lesson = load(SOLUTIONS / "08_pipeline.py")
    slides = lesson_slides(lesson, shown_notebook(lesson, SOLUTIONS / "08_pipeline.ipynb"))
    bubbles = _cells(slides, "More microbatches, less idle time")
    for row in bubbles:
        stages = int(row[0].split()[0])
        counts = [(stages - 1) / (microbatches + stages - 1) for microbatches in (1, 4, 8, 16, 32)]
        assert row[1:] == [f"{100 * each:.0f} %" for each in counts]
    drawn = [re.search(r"(\d+ %) of the time and hold up to (\d)", note) for slide in slides for note in slide.notes]
    told = {each[2]: each[1] for each in drawn if each}
    shares = {row[0]: row[1:] for row in bubbles}
    assert told == {"8": shares["4 stages"][2]}  # what a figure shows stands in the table


@pytest.mark.in_turn
@pytest.mark.parametrize("source", sorted(SOLUTIONS.glob("[0-9][0-9]_*.py")), ids=lambda path: path.stem)
def test_hardly_a_slide_leaves_its_speaker_without_a_word(source: Path) -> None:
    lesson = load(source)
    slides = lesson_slides(lesson, shown_notebook(lesson, source.with_suffix(".ipynb")))
    assert sum(not slide.notes and "<!-- notes:" not in slide.body for slide in slides) <= 3
    for slide in slides:
        if slide.kind == "exercise":
            assert slide.body.count("\n\n") >= 2 and "\n\n\n" not in slide.body, slide.body
    sections = deck_html(slides, lesson.title).split("<section class=")
    for slide in slides:
        asking = [each for each in sections if slide.question and escape(slide.question) in each.partition("<aside")[0]]
        assert not any(f">{slide.answer}" in each for each in asking) and len(asking) == bool(slide.question)


def test_a_workshop_stops_a_lesson_at_its_last_exercise(ring: tuple[Lesson, list[Slide]]) -> None:
    plan = Workshop(
        "x", "A title", (Part("02", 75, ("naive_all_reduce", "chunk_bounds")), Part("02", 30, ("ring_plan",)))
    )
    slides = workshop_slides(plan, [ring, ring])
    assert [slide.exercise for slide in slides if slide.exercise] == ["naive_all_reduce", "chunk_bounds", "ring_plan"]
    assert slides[0].body == "# A title"
    assert "| 1:15 | 02 Ring all-reduce | 30 min | 2.3 |" in slides[2].body


def test_a_workshop_has_a_slide_to_join_breaks_and_an_end(ring: tuple[Lesson, list[Slide]]) -> None:
    parts = (Part("02", 45, ("naive_all_reduce",)), Part("", 10, ()), Part("02", 20, ("chunk_bounds",)))
    slides = workshop_slides(Workshop("x", "A title", parts), [ring, ring], link="http://10.0.0.1:8321/c/abcde-fghij")
    assert '"http://10.0.0.1:8321/c/abcde-fghij"' in slides[1].body and "THE LINK" not in slides[1].body
    (pause,) = (slide for slide in slides if slide.body.startswith("### Break"))
    assert pause.body == "### Break until 0:55" and pause.minutes == 10
    assert slides[-1].body.startswith("### That was it") and "2.3, 2.4" in slides[-1].body
    bodies = [slide.body for slide in slides if slide.kind == "prose"]
    assert len(bodies) == len(set(bodies))  # what was shown before the break is not shown after it
    assert all(slide.minutes for slide in slides if slide.kind == "exercise")


def test_an_exercise_that_is_not_there_is_named(ring: tuple[Lesson, list[Slide]]) -> None:
    with pytest.raises(LessonError, match=r"has no exercise ring_plans; it has naive_all_reduce, "):
        workshop_slides(Workshop("x", "A title", (Part("02", 5, ("ring_plans",)),)), [ring])


def test_a_broken_plan_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('title = "no parts"\n')
    with pytest.raises(LessonError, match=r"plan\.toml is not a workshop's plan"):
        read_workshop(path)


def test_formulas_tables_and_code_are_drawn_without_a_script() -> None:
    html = as_html(
        "$$ t = \\alpha + \\frac{m}{\\beta} $$\n\n| a |\n|---|\n| b |\n\n```python\nx = 1\n```\n\n[03](04_ddp.ipynb)"
    )
    assert "<mfrac>" in html and "<table>" in html and "<span style=" in html
    assert "href" not in html and "03" in html


ASKING = """# %% [markdown]
# # Small
#
# ## One step
#
# Four workers, one of them slow. **How long
# does a step take?** (In ms.)

# %% tags=["predict"]
labkit.predict("step_ms", 10, unit="ms")

# %%
labkit.reveal("step_ms", 30, figure)

# %% tags=["predict"]
labkit.predict("slow_steps", 2)

# %%
labkit.reveal("slow_steps", 3)
"""


@pytest.mark.in_turn
def test_a_figure_behind_a_guess_is_a_question_first_and_comes_with_what_was_found() -> None:
    lesson = parse(ASKING, "solutions/04_small.py")
    predictions._written.clear()
    figure = labkit.schedule_explorer()
    said = [labkit.predict("step_ms", 10, unit="ms"), labkit.reveal("step_ms", 30, figure)]
    said += [labkit.predict("slow_steps", 2), labkit.reveal("slow_steps", 3)]
    predictions._written.clear()
    cells = []
    for cell, shown in zip([each for each in lesson.cells if each.kind == "code"], said, strict=True):
        found = shown._repr_mimebundle_() if hasattr(shown, "_repr_mimebundle_") else ({"text/plain": repr(shown)}, {})
        data = {kind: content for kind, content in found[0].items() if kind != "image/png"}
        output = nbformat.v4.new_output("execute_result", data=data, metadata=found[1])
        cells.append(nbformat.v4.new_code_cell(cell.source, id=cell.id, outputs=[output]))
    (slide,) = (each for each in lesson_slides(lesson, nbformat.v4.new_notebook(cells=cells)) if each.kind == "figure")
    assert (slide.title, slide.question) == ("One step", "How long does a step take?")
    assert slide.answer == "30 ms"  # and no word of what the lesson's author guessed
    assert slide.body.startswith('<div class="labkit-figure"') and slide.notes == [figure.sentence]
    shown = deck_html([slide], "A deck")
    places = [shown.index(words) for words in ('<p class="guess', "How long", ">30 ms</h3>", '"picture"')]
    assert places == sorted(places)


def test_a_reader_of_the_executed_lesson_sees_the_guess_that_its_pictures_speak_of(tmp_path: Path) -> None:
    lesson = parse(ASKING, "solutions/04_small.py")
    executed = unexecuted(lesson)
    nbformat.write(executed, tmp_path / "04_small.ipynb")
    cells = {cell.id: cell.source for cell in shown_notebook(lesson, tmp_path / "04_small.ipynb").cells}
    assert cells["predict-step-ms"] == 'labkit.predict("step_ms", 10, unit="ms")'
    handed_out = {cell.id: cell.source for cell in student_notebook(lesson).cells}
    assert handed_out["predict-step-ms"] == 'labkit.predict("step_ms", None, unit="ms")'
