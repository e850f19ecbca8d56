"""Pages, decks and speaker notes show a class its own recordings, and nobody an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

import labkit
from labkit.checks.question import KEY, OWN, read_key
from labkit.grading.handout.release import release
from labkit.lessons.class_course import HIDDEN, class_course, own_keys, own_recordings, showing
from labkit.lessons.course import source_files
from labkit.lessons.decks import write_decks
from labkit.lessons.lesson import Cell
from labkit.lessons.notebook import as_text
from labkit.lessons.shown import shown_notebook
from labkit.lessons.source import load, parse
from tests.grading.telling import KEYS, ROOT, sentences, tells

SOURCES = source_files(ROOT)
FINDS = sorted(own_recordings(ROOT))
FIRST = SOURCES[:3]
"""Of which a class's version is made every time; that of the other lessons takes half a minute."""


def _source(slug: str) -> Path:
    """Return the lesson that shows a recording."""
    (source,) = (path for path in SOURCES if f'recorded("{slug}")' in path.read_text(encoding="utf-8"))
    return source


@pytest.fixture(scope="module")
def first() -> Iterator[Path]:
    """The first lessons as a class sees them."""
    with class_course(ROOT, FIRST) as folder:
        yield folder


@pytest.fixture(scope="module")
def every() -> Iterator[Path]:
    """The course as a class sees it."""
    with class_course(ROOT, SOURCES) as folder:
        yield folder


def _read(course: Path, sources: list[Path], folder: Path) -> list[Path]:
    """Return what is read of these lessons: the notebooks that pages are made from, and decks."""
    for source in sources:
        notebook = shown_notebook(load(source), course / "solutions" / f"{source.stem}.ipynb")
        (folder / f"{source.stem}.ipynb").write_text(as_text(notebook), encoding="utf-8")
    write_decks([path.stem for path in sources], [], folder, course=course, browser=None, say=str, public=True)
    return [path for path in folder.iterdir() if path.suffix in (".ipynb", ".html")]


@pytest.mark.in_turn
def test_the_search_would_find_what_the_executed_solutions_say() -> None:
    found = [line for source in SOURCES for line in tells(source.with_suffix(".ipynb"))]
    reasons = {read_key(path).reason for path in KEYS if path.is_relative_to(ROOT / "labkit")}
    said = {slug for slug, _ in sentences() if any(line.startswith(f"{slug}:") for line in found)}
    assert len(reasons) == len(said) == 47 and any(line.startswith("Right.") for line in found)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "which",
    [
        "of the class, first lessons",
        "the same for all",
        pytest.param("of the class", marks=pytest.mark.long),
        pytest.param("in public", marks=pytest.mark.long),
    ],
)
def test_pages_decks_and_notes_hold_no_answer_and_no_verdict(
    request: pytest.FixtureRequest, tmp_path: Path, which: str
) -> None:
    """A class reads lessons with a recording of its own in its version; the others there are in one."""
    own = [path for path in SOURCES if showing(load(path), FINDS)]
    assert 0 < len(own) < len(SOURCES)
    sources = [path for path in SOURCES if path not in own] if which == "the same for all" else own
    course = ROOT
    if which == "of the class":
        course = request.getfixturevalue("every")
    elif which == "of the class, first lessons":
        course, sources = request.getfixturevalue("first"), [path for path in own if path in FIRST]
        assert sources
    read = _read(course, sources, tmp_path)
    assert len(read) == 2 * len(sources)
    found = {path.name: told for path in read if (told := tells(path))}
    assert not found


def test_the_slides_that_are_handed_out_hold_no_answer_and_no_verdict() -> None:
    assert not {path.name: told for path in (ROOT / "slides").glob("*.md") if (told := tells(path))}


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "slug", [pytest.param(each, marks=[] if _source(each) in FIRST else [pytest.mark.long]) for each in FINDS]
)
def test_what_a_class_sees_of_a_run_is_its_own(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, slug: str
) -> None:
    source = _source(slug)
    seen = request.getfixturevalue("first" if source in FIRST else "every")
    public, own = (
        {cell.id: cell for cell in nbformat.read(folder / "solutions" / f"{source.stem}.ipynb", as_version=4).cells}
        for folder in (ROOT, seen)
    )
    shown = showing(load(source), [slug])
    assert shown and all(own[cell.id].source == public[cell.id].source for cell in shown)
    if slug == "diverging_run":  # a curve and a log, no timeline
        assert own[shown[0].id].outputs != public[shown[0].id].outputs
        return
    monkeypatch.setenv("LABKIT_VIEWS", "kept")
    rooms = {"class": HIDDEN, "public": Path("labkit", "exercises")}
    for which, cells in (("class", own), ("public", public)):
        monkeypatch.setenv(OWN, str(ROOT / rooms[which]))
        data, _ = labkit.recorded(slug)._repr_mimebundle_()
        (output,) = cells[shown[0].id].outputs
        assert output.data["text/plain"] == data["text/plain"], which
    assert own[shown[0].id].outputs != public[shown[0].id].outputs


def test_cells_that_use_a_recording_are_found_and_bring_what_they_need() -> None:
    text = """# %% [markdown]
# # A lesson

# %%
import json
first = labkit.recorded("late_rank")
other = labkit.recorded("held")

# %%
def longest(timeline):
    return json.dumps(max(first.kind for first in timeline))

# %%
print(longest(first))

# %%
print(longest(other))

# %%
first = 1

# %%
print(first)
"""
    cells = [cell for cell in parse(text, "09_x.py").cells if cell.kind == "code"]

    def sources(found: tuple[Cell, ...]) -> list[str]:
        return [cell.source.split("\n")[-1] for cell in found]

    lesson = parse(text, "09_x.py")
    assert sources(showing(lesson, ["late_rank"])) == [cells[0].source.split("\n")[-1], "print(longest(first))"]
    assert sources(showing(lesson, ["held"])) == [cells[0].source.split("\n")[-1], "print(longest(other))"]
    assert showing(lesson, []) == showing(lesson, ["another"]) == ()


def test_an_instructor_looks_at_the_classs_run_and_is_judged_by_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert labkit.answer("slow_ring", sent_mb=112, links=8, cause="whole tensor in every step").passed is False
    monkeypatch.setenv(OWN, str(ROOT / HIDDEN))
    for slug, path in own_keys(ROOT).items():
        assert labkit.answer(slug, **read_key(path).answers).passed is True
        assert list(labkit.recorded(slug).rows()) == list(labkit.Timeline.load(own_recordings(ROOT)[slug]).rows())


@pytest.mark.long
def test_a_whole_release_tells_nobody_an_answer(tmp_path: Path) -> None:
    release(tmp_path / "class", pages=True)
    read = (".html", ".ipynb", ".md", ".js")
    files = [path for path in (tmp_path / "class").rglob("*") if path.suffix in read and path.is_file()]
    assert sum(path.match("pages/site/made/lessons/*.html") for path in files) == len(SOURCES)
    assert sum(path.match("pages/slides/*.html") for path in files) == len(SOURCES)
    assert not {str(path): told for path in files if (told := tells(path))}
    assert not [path for path in (tmp_path / "class").rglob(KEY) if path.parent.name in own_keys(ROOT)]
    deck = (tmp_path / "class" / "pages" / "slides" / "00_start_here.html").read_text(encoding="utf-8")
    own, public = (json.dumps(f"{length} ms")[1:-1] for length in ("55.2", "64.9"))
    assert own in deck and public not in deck
