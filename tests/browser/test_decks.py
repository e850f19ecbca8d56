"""Decks as a speaker meets them: every slide fits, nothing is fetched, explorers move, and the PDF has every page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labkit.doctor import find_browser
from labkit.lessons.decks import write_decks
from labkit.lessons.presentation import Slide
from labkit.lessons.reveal import _CUT, _LAID_OUT, HEIGHT, WIDTH, write_deck
from tests.sampling import one_in

ROOT = Path(__file__).parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "solutions").glob("[0-9][0-9]_*.py"))
GUESS = 76  # pixels of what a room guesses, alone on its slide
CLOCK = 72  # pixels of every exercise's countdown
TITLE, STORY = 52, 25  # pixels of every title, and of what a story's boxes say, on a slide of 1280
CALLED = 0.8  # of a text's letters, those of how its function is called, at least
TEXT, LABEL = 25, 24  # of the smallest type that is read, and in a picture: a thirtieth of a slide's height
FEW = 4  # words under a title that are none
# Pictures whose letters are pixels, so that none can be measured here: they were looked at (tests/browser/test_decks.py
# refuses every other one).
LOOKED_AT = {"Which line of the log is wrong?", "Somebody else's machines"}
WORKSHOPS = sorted(path.stem for path in (ROOT / "docs" / "workshops").glob("*.toml"))

pytestmark = [pytest.mark.browser]

# How far down and to the right a slide's content reaches, in the slide's own pixels, code cut off at its right, and the
# smallest type outside of figures and in those that are live.
REACH = r"""() => {
  const slide = document.querySelector("section.present"), frame = slide.getBoundingClientRect();
  const parts = [...slide.querySelectorAll(":scope > :not(aside)")].map((part) => part.getBoundingClientRect());
  const lines = [...slide.querySelectorAll(":scope > :is(pre, h1, h2, h3, p), li")];
  const cut = lines.some((line) => line.scrollWidth > line.clientWidth + 1);
  const scale = Reveal.getScale(), picture = slide.querySelector(".picture")?.getBoundingClientRect();
  const figure = slide.querySelector(".picture > *")?.getBoundingClientRect();
  const past = figure && (figure.bottom > picture.bottom + 2 || figure.right > picture.right + 2);
  const texts = [...slide.querySelectorAll(":scope > :not(aside) *, :scope > :not(aside)")].filter((each) =>
    !each.closest(".picture") && [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
  const letters = [...slide.querySelectorAll(".live *")].filter((each) => each.checkVisibility() &&
    each.getBoundingClientRect().width && !each.closest("style, script, [data-part=player]") &&
    [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
  const fitted = Number(slide.querySelector(".live")?.dataset.fitted);
  const enlarged = (each) => (each.ownerSVGElement ? each.getScreenCTM().a / scale : fitted);
  const painted = [...slide.querySelectorAll(".picture :is(canvas, img)")].filter((each) => each.checkVisibility());
  const inked = [...slide.querySelectorAll(".picture :is(canvas, img, rect, path, circle, text, p, button)")];
  const ink = inked.filter((each) => each.checkVisibility()).map((each) => each.getBoundingClientRect());
  const drawn = Math.max(0, ...ink.map((each) => each.bottom - frame.top)) / scale;
  const says = slide.querySelector(".asked, .asks") ? null : slide.querySelector(".lk header > :first-child");
  const titled = !says || says.textContent === slide.querySelector("h3").textContent;
  const heading = slide.querySelector(":scope > :is(h2, h3)");
  const stage = slide.querySelector(".live .lk [data-part=stage] svg");
  const isStory = stage && !stage.querySelector("text:not(.plain)") && stage.querySelector("text.plain");
  const told = [...(isStory ? stage.querySelectorAll("text") : [])].filter((each) => each.textContent.trim());
  const written = [...slide.querySelectorAll(".live svg text")].filter((each) => each.checkVisibility() &&
    each.textContent.trim()).map((each) => [each.textContent, each.getBoundingClientRect()]);
  const overlap = written.flatMap(([words, one], k) => written.slice(k + 1).flatMap(([others, other]) => {
    const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
    const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
    return wide > 2 && high > 0.35 * Math.min(one.height, other.height) ? [`${words} / ${others}`] : [];
  }));
  const said = (parts) => parts.map((each) => each.innerText).join(" ").trim().split(/\s+/).length;
  const words = said([...slide.querySelectorAll(":scope > :not(aside, h1, h2, h3, .about, .countdown)")]);
  const sizeOf = (each) => parseFloat(getComputedStyle(each).fontSize);
  const body = [...slide.querySelectorAll(":is(p:not(.ask, .guess, .countdown, .kicker), li, td)")];
  const loudest = Math.max(0, ...body.filter((each) => !each.closest(".live")).map(sizeOf));
  const calls = [...slide.querySelectorAll(".exercise li > code:first-child")];
  const called = Math.min(1, ...calls.map((each) => sizeOf(each) / sizeOf(each.parentElement)));
  const clock = slide.querySelector(".about ~ .countdown button, .countdown:has(~ .about) button");
  return {overlap, words, loudest, called, heading: heading?.innerText, painted: painted.length,
    clock: clock && parseFloat(getComputedStyle(clock).fontSize),
    isTitle: Boolean(slide.querySelector(":scope > :is(h1, .countdown)")), titled,
    title: heading ? parseFloat(getComputedStyle(heading).fontSize) : null,
    story: told.length && Math.max(...told.map((each) => parseFloat(getComputedStyle(each).fontSize) * enlarged(each))),
    drawn: slide.matches(".figure") ? drawn : slide.clientHeight,
    letters: Math.min(...letters.map((each) => parseFloat(getComputedStyle(each).fontSize) * enlarged(each))),
    spilt: Boolean(past || (figure && figure.height < 60)), prose: slide.matches(".prose, .exercise"),
    least: Math.min(...texts.map((each) => parseFloat(getComputedStyle(each).fontSize))),
    down: Math.max(0, ...parts.map((part) => part.bottom - frame.top)) / scale,
    right: Math.max(0, ...parts.map((part) => part.right - frame.left)) / scale,
    cut, text: slide.innerText.slice(0, 60)};
}"""
# Whether the slide's figure has come to life, and it or the prose has found its size.
ALIVE = """() => {
  const slide = document.querySelector("section.present"), live = slide.querySelector(".live");
  if (slide.matches(".prose, .exercise") && !("grown" in slide.dataset)) return false;
  return !live || (live.dataset.fitted > "" && !live.querySelector(".labkit-timeline:not([data-painted])"));
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where decks lie; one that was written is written no second time."""
    return tmp_path_factory.mktemp("decks")


def deck(name: str, folder: Path) -> str:
    """Return the address of a lesson's or workshop's deck, written into the folder."""
    if (folder / f"{name}.html").exists():
        return (folder / f"{name}.html").as_uri()
    plans = [ROOT / "docs" / "workshops" / f"{name}.toml"] if name in WORKSHOPS else []
    lessons = [] if plans else [name]
    (written,) = write_decks(lessons, plans, folder, course=ROOT, browser=None, say=lambda _: None)
    return written.as_uri()


@pytest.fixture
def opened(browser: Any) -> Any:
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    yield page
    page.close()


@pytest.mark.in_turn
@pytest.mark.parametrize("name", one_in(len(LESSONS) + len(WORKSHOPS), [*LESSONS, *WORKSHOPS]))
def test_every_slide_fits_in_type_for_the_last_row_and_none_is_half_empty(opened: Any, folder: Path, name: str) -> None:
    opened.goto(deck(name, folder))
    opened.wait_for_function("window.Reveal && Reveal.isReady()")
    too_large, poor = [], []
    for number in range(opened.evaluate("Reveal.getTotalSlides()")):
        opened.evaluate(f"Reveal.slide({number}, 0, 99)")  # with what comes after a guess
        opened.wait_for_function(ALIVE)
        reach = opened.evaluate(REACH)
        if reach["down"] > HEIGHT or reach["right"] > WIDTH or reach["cut"] or reach["spilt"]:
            too_large.append((number + 1, reach))
        if reach["clock"] not in (None, CLOCK):
            poor.append((number + 1, reach))
        if reach["title"] not in (None, TITLE) or (reach["story"] or STORY) < STORY:
            poor.append((number + 1, reach))
        if reach["called"] < CALLED - 0.001 or (reach["title"] and reach["loudest"] > TITLE):
            poor.append((number + 1, reach))
        empty = reach["drawn"] < 0.6 * HEIGHT or (reach["prose"] and reach["down"] < 0.6 * HEIGHT)
        empty |= reach["prose"] and not reach["isTitle"] and reach["words"] < FEW
        small = reach["painted"] > 0 and reach["heading"] not in LOOKED_AT  # who paints letters has them unmeasured
        small |= reach["least"] < TEXT or (reach["letters"] or LABEL) < LABEL - 0.1
        if empty or small or not reach["titled"] or reach["overlap"]:
            poor.append((number + 1, reach))
    assert not too_large and not poor
    assert all(url.startswith(("file:", "data:", "blob:")) for url in opened.asked)
    assert opened.evaluate("document.querySelectorAll('aside.notes').length") >= 3


@pytest.mark.in_turn
def test_an_exercise_counts_its_minutes_down_from_a_click(opened: Any, folder: Path) -> None:
    opened.goto(deck("00_start_here", folder))
    opened.wait_for_function("window.Reveal && Reveal.isReady()")
    places = "[...document.querySelectorAll('.slides > section')].findIndex((each) => each.matches('.exercise'))"
    opened.evaluate(f"Reveal.slide({places})")
    button = opened.locator("section.present .countdown button")
    whole = button.inner_text()
    button.click()
    opened.wait_for_function(
        "(whole) => document.querySelector('section.present .countdown button').innerText !== whole", arg=whole
    )
    opened.keyboard.press("PageDown")  # the countdown has not kept the keys
    opened.wait_for_function("!document.querySelector('section.present').matches('.exercise')")


@pytest.mark.long
def test_an_explorer_comes_after_its_question_and_moves_in_a_slide(opened: Any, tmp_path: Path) -> None:
    opened.goto(deck("09_schedules", tmp_path))
    opened.wait_for_function("window.Reveal && Reveal.isReady()")
    holders = "[...document.querySelectorAll('.slides > section')]"
    number = opened.evaluate(f"{holders}.findIndex((slide) => slide.matches('.asking'))")
    assert number > 0
    opened.evaluate(f"Reveal.slide({number})")
    figure = opened.locator("section.present .labkit-figure")
    assert not figure.count()  # the slide asks for a guess first
    opened.keyboard.press("PageDown")
    figure.wait_for()
    before = figure.inner_html()
    figure.locator("button").nth(2).click()
    shown = "document.querySelector('section.present .labkit-figure').innerHTML"
    opened.wait_for_function(f"(before) => {shown} !== before", arg=before)


@pytest.mark.long
def test_a_timeline_is_zoomed_in_a_slide_and_a_clicker_still_goes_on(opened: Any, tmp_path: Path) -> None:
    opened.goto(deck("02_ring_all_reduce", tmp_path))
    opened.wait_for_function("window.Reveal && Reveal.isReady()")
    number = opened.evaluate(
        "[...document.querySelectorAll('.slides > section')].findIndex((s) => s.querySelector('canvas'))"
    )
    assert number > 0
    opened.evaluate(f"Reveal.slide({number})")
    opened.wait_for_function(ALIVE)
    opened.locator("section.present .hall-timeline").click()  # a drawing for the room, until somebody wants to zoom
    opened.wait_for_function("document.activeElement.matches('section.present canvas')")
    window = "JSON.parse(document.querySelector('section.present .labkit-timeline').dataset.numbers).window"
    whole = opened.evaluate(window)
    opened.keyboard.press("+")
    opened.wait_for_function(f"(whole) => {window} < whole", arg=whole)
    assert opened.evaluate("Reveal.getIndices().h") == number
    opened.keyboard.press("Escape")
    drawing = opened.locator("section.present .hall-timeline")
    drawing.wait_for()
    drawing.click()
    opened.keyboard.press("PageDown")
    opened.wait_for_function(f"Reveal.getIndices().h === {number + 1}")


@pytest.mark.usefixtures("browser")
@pytest.mark.long
@pytest.mark.parametrize("name", ["00_start_here", "06_parameter_server"])  # the second is full of hatched drawings
def test_the_pdf_has_a_page_for_every_slide_and_can_be_mailed(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-c", "from labkit.cli import main; main()", "slides", name, "--pdf"]
    command += ["--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    html, pdf = (tmp_path / f"{name}.{kind}" for kind in ("html", "pdf"))
    assert done.stdout.splitlines() == [str(html), str(pdf)]
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))
    assert pages == html.read_text().count("<section class=")
    assert pdf.stat().st_size < 8_000_000


# Of each sentence below a drawing how far it lies past its picture's edges, the drawing printed as a picture.
SENTENCES = """() => [...document.querySelectorAll(".picture [data-part=say]")].filter((each) => each.checkVisibility())
  .map((say) => {
    const picture = say.closest(".picture");
    picture.querySelectorAll("svg").forEach((svg) => svg.replaceWith(new Image()));
    const [inner, outer] = [say, picture].map((each) => each.getBoundingClientRect());
    return Math.max(outer.left - inner.left, inner.right - outer.right);
  })"""


@pytest.mark.in_turn
@pytest.mark.parametrize("name", ["04_ddp", "08_pipeline"])
def test_on_paper_no_code_and_no_sentence_is_cut_off(opened: Any, folder: Path, name: str) -> None:
    opened.goto(f"{deck(name, folder)}?print-pdf")
    opened.wait_for_function(_LAID_OUT, arg=HEIGHT)
    opened.evaluate("fitAll()")
    assert opened.evaluate(_CUT) == []
    guesses = "[...document.querySelectorAll('.guess')].map((each) => parseFloat(getComputedStyle(each).fontSize))"
    assert min([GUESS, *opened.evaluate(guesses)]) == GUESS  # as large as on the wall
    past = opened.evaluate(SENTENCES)
    assert past and max(past) <= 1


@pytest.mark.usefixtures("browser")
@pytest.mark.in_turn
def test_code_that_no_page_holds_is_an_error_and_no_pdf(tmp_path: Path) -> None:
    slides = [Slide("prose", "# Wide"), Slide("prose", f"## Code\n\n```python\n{'x' * 200}\n```")]
    path = write_deck(slides, "Wide", "wide", tmp_path)
    prints = "from pathlib import Path; from labkit.lessons.reveal import write_pdf; write_pdf(Path({!r}), {!r})"
    command = [sys.executable, "-c", prints.format(str(path), find_browser())]  # the tests' own browser is in use here
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert "LessonError: wide.html: code on page 2 is cut off at its right in print" in done.stderr
    assert not path.with_suffix(".pdf").exists()


@pytest.mark.in_turn
def test_a_question_is_a_title_its_answer_as_large_and_a_short_timeline_fills_its_slide(
    opened: Any, folder: Path
) -> None:
    opened.goto(deck("04_ddp", folder))
    opened.wait_for_function("window.Reveal && Reveal.isReady()")
    of = "[...document.querySelectorAll('.slides > section')].findIndex((each) => each.querySelector('.asked'))"
    opened.evaluate(f"Reveal.slide({of}, 0, 99)")
    opened.wait_for_function(ALIVE)
    slide = opened.locator("section.present")
    assert slide.locator(".asked .kicker").inner_text().startswith("Computation hides ")
    answer = slide.locator(".asked h3")
    assert re.fullmatch(r"[\d.]+ ms", answer.inner_text())
    assert answer.evaluate("(each) => parseFloat(getComputedStyle(each).fontSize)") > TITLE
    bars = slide.locator(".hall-timeline rect").evaluate_all(
        "(all) => all.map((each) => Number(each.getAttribute('height')))"
    )
    assert max(bars) > 150  # of a timeline that has one row
    words = slide.locator(".hall-timeline text").all_text_contents()
    assert {"forward", "backward", "all-reduce", "7 more alike"} <= set(words)  # in the bars, and no key beside them
