"""Slides as one folder of HTML that reveal.js shows, offline, with notes; and as PDF, printed by Chromium.

reveal.js is the engine because it is kept up, speaks HTML (so labkit's explorers are live in it), and has notes and
printing of its own. Its files come with sphinx-revealjs, which is on PyPI with them and needs no node.
"""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from labkit.errors import EnvironmentProblem, LessonError
from labkit.lessons.presentation import Slide
from labkit.widgets.timeline_view import program, style

WIDTH, HEIGHT = 1280, 720
_LONGEST_MS = 100_000
# True once every slide has a page below the one before it; until then the browser would print a single page. Then
# every figure is alive and has the size it is given.
_LAID_OUT = """(height) => {
  const pages = document.querySelectorAll(".pdf-page").length, slides = Reveal.isReady() ? Reveal.getTotalSlides() : 0;
  const laidOut = slides > 0 && pages >= slides && document.documentElement.scrollHeight >= height * pages;
  return laidOut && [...document.querySelectorAll(".live")].every((each) => each.querySelector("svg, canvas"));
}"""
# A browser prints every hatched shape of a drawing as a picture as large as the drawing: 13 MB for one deck.
_HATCHED = "(stage) => [...stage.querySelectorAll('*')].some((each) => getComputedStyle(each).fill.startsWith('url'))"
_AS_PICTURE = """(stage, data) => {
  const picture = new Image(), svg = stage.querySelector("svg"), { width, height } = getComputedStyle(stage);
  picture.style.cssText = `display:block;width:${width};height:${height}`;
  picture.alt = svg.getAttribute("aria-label") ?? "";
  picture.src = `data:image/png;base64,${data}`;
  svg.replaceWith(picture);
  return picture.decode().then(() => null);
}"""
# The pages whose timeline's drawing has next to nothing in it.
_BLANK = """() => [...document.querySelectorAll(".pdf-page")].flatMap((page, at) =>
  [...page.querySelectorAll(".labkit-timeline")].some(
    (view) => page.querySelectorAll(".hall-timeline rect").length < 4) ? [at + 1] : [])"""
# The pages on which a line of code goes on past its frame.
_CUT = """() => [...document.querySelectorAll(".pdf-page")].flatMap((page, at) =>
  [...page.querySelectorAll("section > pre code")].some((each) => each.scrollWidth > each.clientWidth + 1)
    ? [at + 1] : [])"""
_OWN = (
    "slides.css",
    "slide_figures.css",
    "slide_prose.js",
    "slide_bars.js",
    "slide_ranks.js",
    "slide_messages.js",
    "slide_timeline.js",
    "slide_story.js",
    "slides.js",
)
_PARTS = ("dist/reveal.js", "dist/reveal.css", "dist/reset.css", "plugin/notes", "LICENSE")


def write_deck(slides: Iterable[Slide], title: str, name: str, folder: Path) -> Path:
    """Return the deck's HTML file, written beside the engine's files; it opens without a server or a network.

    Args:
        slides: In order.
        title: Title of the window.
        name: The file's stem.
        folder: Where decks go.

    Raises:
        EnvironmentProblem: If the packages of the extra ``docs`` are missing.
    """
    engine = _engine()
    folder.mkdir(parents=True, exist_ok=True)
    for part in _PARTS:
        source, target = engine / part, folder / "reveal.js" / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.exists():
            shutil.copyfile(source, target)
    for own in _OWN:
        shutil.copyfile(Path(__file__).with_name(own), folder / own)
    path = folder / f"{name}.html"
    path.write_text(deck_html(slides, title), encoding="utf-8")
    return path


def deck_html(slides: Iterable[Slide], title: str) -> str:
    """Return the deck as a page; the engine's files lie beside it."""
    shown = list(slides)
    runs = {number: slide.runs for number, slide in enumerate(shown, 1) if slide.runs}
    beside = FileSystemLoader(Path(__file__).parent)
    templates = Environment(
        loader=beside, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters["as_html"] = lambda markdown: Markup(_for_a_room(as_html(markdown)))
    templates.filters["whole_units"] = lambda words: _UNIT.sub("\N{NO-BREAK SPACE}", words)
    return templates.get_template("deck.html").render(
        title=title, slides=shown, timelines=Markup(_timelines(runs)), width=WIDTH, height=HEIGHT
    )


_ROOM = re.compile(r"<p><strong>To the room:</strong>\s*(.)(.*?)</p>", re.S)
_UNIT = re.compile(r"(?<=\d) (?=(?:ms|µs|s|KB|MB|GB|TB|GB/s|%)(?!\w))|(?<=\b(?:[Rr]ank|step)) (?=\d)")


def _for_a_room(html: str) -> str:
    """Return a slide's HTML in which a question to the room, and an exercise's minutes, have a place of their own.

    A number stays in one line with its unit, or with what it numbers.
    """
    html = _ROOM.sub(
        lambda asks: f'<p class="ask"><span>To the room</span><b>{asks[1].upper()}{asks[2]}</b></p>',
        html,
    )
    minutes = r'<p class="about"><span class="minutes">\1 · </span>'
    html = re.sub(r"<p>(<strong>\d+ minutes?</strong>) · ", minutes, html)
    return _UNIT.sub("\N{NO-BREAK SPACE}", html)


def write_pdf(deck: Path, browser: str) -> Path:
    """Return the PDF printed from a deck, beside it.

    Args:
        deck: The HTML file.
        browser: Path of a Chromium or Chrome.

    Raises:
        EnvironmentProblem: If Playwright is missing, or the browser does not print.
        LessonError: If a timeline is blank in print, or a line of code cut off.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ModuleNotFoundError as error:
        raise EnvironmentProblem(
            "printing slides needs Playwright: pip install playwright (make setup installs it)"
        ) from error
    target = deck.with_suffix(".pdf")
    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
            page = chromium.new_page(device_scale_factor=2)
            page.set_default_timeout(_LONGEST_MS)
            page.goto(f"{deck.resolve().as_uri()}?print-pdf")
            page.wait_for_function(_LAID_OUT, arg=HEIGHT)
            page.evaluate("fitAll()")
            if cut := page.evaluate(_CUT):
                raise LessonError(
                    f"{deck.name}: code on page {cut[0]} is cut off at its right in print, so there is no PDF; shorten "
                    "its lines."
                )
            if blank := page.evaluate(_BLANK):
                raise LessonError(
                    f"{deck.name}: the timeline on page {blank[0]} is blank in print, so there is no PDF."
                )
            # What lies over a drawing would be in its picture, too.
            unseen = page.add_style_tag(content=".slide-number-pdf { visibility: hidden !important; }")
            for drawing in page.query_selector_all(".live [data-part=stage]:has(svg)"):
                if drawing.evaluate(_HATCHED):
                    drawing.evaluate(_AS_PICTURE, base64.b64encode(drawing.screenshot()).decode())
            unseen.evaluate("(style) => style.remove()")
            page.pdf(path=target, prefer_css_page_size=True, print_background=True)
            chromium.close()
    except Error as error:
        raise EnvironmentProblem(f"{browser} could not print {deck.name}: {error.message.splitlines()[0]}") from error
    return target


def _engine() -> Path:
    try:
        with resources.as_file(resources.files("sphinx_revealjs")) as package:
            return package / "_static" / "revealjs"
    except ModuleNotFoundError as error:
        raise EnvironmentProblem(
            "slides need more packages: pip install 'labkit-torch[docs]' (make setup installs them)"
        ) from error


def _timelines(runs: dict[int, str]) -> str:
    """Return style and program of timelines, once for all in the deck, and the runs that each shows.

    They are the first style and the first module of the page, for that is what a timeline takes along that a reader
    exports as a page of its own.
    """
    if not runs:
        return ""
    calls = "\n".join(
        f'labkit.showPage(document.getElementById("timeline-{at}"), {data});' for at, data in runs.items()
    )
    return f'<style>{style()}</style>\n<script type="module">{program()}\n{calls}\n</script>'


def as_html(markdown: str) -> str:
    """Return Markdown as HTML, code coloured, formulas as MathML."""
    from latex2mathml.converter import convert
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    def coloured(code: str, language: str, _: str) -> str:
        lexer = get_lexer_by_name(language or "text")
        return str(highlight(code, lexer, HtmlFormatter(nowrap=True, noclasses=True, style="friendly")))

    def formula(text: str, options: dict[str, bool]) -> str:
        return str(convert(text, display="block" if options["display_mode"] else "inline"))

    reader = MarkdownIt("commonmark", {"highlight": coloured}).enable("table")
    reader.use(dollarmath_plugin, renderer=formula, double_inline=True)
    html = str(reader.render(markdown))
    # A link to another notebook leads nowhere in a deck.
    return re.sub(r'<a href="(?!https?:)[^"]*">(.*?)</a>', r"\1", html)
