"""`make docs` builds a site that needs no network, whose links lead somewhere, and that holds no answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import labkit
from labkit.errors import ConfigError
from labkit.hardware import DEVICES, LINKS
from labkit.lessons.played import LESSONS as PLAYED
from tests.sampling import one_in

pytestmark = pytest.mark.in_turn

ROOT = Path(__file__).parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "solutions").glob("[0-9][0-9]_*.py"))


class Page(HTMLParser):
    """What a page loads when it is opened, where it leads, and what can be led to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if "src" in found:
            self.loads.append(found["src"])
        if "href" in found:
            rel = found.get("rel", "")
            (self.links if tag == "a" or rel in ("next", "prev", "index", "search") else self.loads).append(
                found["href"]
            )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        str(ROOT / "docs"),
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_a_page_loads_nothing_from_the_network(pages: dict[Path, Page]) -> None:
    away = {load for page in pages.values() for load in page.loads if urlsplit(load).netloc}
    assert not away


def test_every_link_within_the_site_leads_somewhere(pages: dict[Path, Page], site: Path) -> None:
    broken = []
    for path, page in pages.items():
        for link in (*page.links, *page.loads):
            where = urlsplit(link)
            if where.scheme or where.netloc:
                continue
            target = (path.parent / unquote(where.path)).resolve() if where.path else path
            if not target.exists() or (
                target in pages and where.fragment and where.fragment not in pages[target].anchors
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_is_there_with_its_pictures_and_without_answers(
    site: Path, pages: dict[Path, Page], lesson: str
) -> None:
    path = site / "made" / "lessons" / f"{lesson}.html"
    text = path.read_text(encoding="utf-8")
    assert "NotImplementedError" in text and "BEGIN SOLUTION" not in text
    assert len(text.encode()) < 2_000_000
    cells = json.loads((ROOT / "solutions" / f"{lesson}.ipynb").read_text())["cells"]
    outputs = [each for cell in cells for each in cell.get("outputs", ()) if "image/png" in each.get("data", {})]
    kept = ["timeline" in each["metadata"].get("labkit", {}) for each in outputs]
    live = [load for load in pages[path].loads if load.startswith("timelines/")]
    assert len(live) == sum(kept)  # what was kept of a run plays; of others there is the picture
    for each in live:
        page = (path.parent / each).read_text(encoding="utf-8")
        assert "labkit.showPage(" in page and len(page) < 600_000
    stills = [each for each, plays in zip(outputs, kept, strict=True) if not plays and "text/html" not in each["data"]]
    assert len(re.findall(r"<img[^>]+src=\"(?:\.\./\.\./_images/\w+\.png|data:image/png)", text)) >= len(stills)
    assert "<math" in text or not re.search(r"\$\$", (ROOT / "solutions" / f"{lesson}.py").read_text())


def test_a_lesson_lists_every_exercise_and_opens_with_no_wall_of_imports(pages: dict[Path, Page], site: Path) -> None:
    path = site / "made" / "lessons" / "02_ring_all_reduce.html"
    text = path.read_text(encoding="utf-8")
    listed = text[text.index('class="toc-tree"') :]
    for number in range(1, 9):
        assert f">Exercise 2.{number} " in listed
    assert {"exercise-2-6-twice-the-ranks", "sources"} <= pages[path].anchors
    first = text.index("<h2>1 What")
    imports = text.index("<details", text.index("<h1>"))
    assert imports < first and "Imports" in text[imports:first]


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_opens_with_a_picture_and_how_to_run_it(pages: dict[Path, Page], site: Path, lesson: str) -> None:
    path = site / "made" / "lessons" / f"{lesson}.html"
    text = path.read_text(encoding="utf-8")
    opening = text[text.index("<h1>") : text.index("<h2>")]
    assert f"<code>{lesson}.ipynb</code>" in opening
    face = opening[opening.index('<div class="face">') :]
    assert re.search(r"<img [^>]*src=.data:image/png", face)
    if marks := re.findall(r'data-figure="(\w+)"', face):  # it is alive, and another than the one further down
        assert text.count(f'data-figure="{marks[0]}"') == 1 and f'figure.start("{marks[0]}"' in face
    assert (lesson[:2] in PLAYED) == ('<a class="play" href="../played/' in opening)
    assert f"../notebooks/{lesson}.ipynb" in pages[path].links  # and it is there, as every link is
    assert "labkit.hint(" not in opening and "labkit.hint(" in re.sub(r"<[^>]+>", "", text)


@pytest.mark.browser
def test_prose_and_code_of_a_lesson_have_one_left_and_one_right_edge(site: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto((site / "made" / "lessons" / "02_ring_all_reduce.html").as_uri())
    edges = """(what) => [...document.querySelectorAll(what)].map((each) => each.getBoundingClientRect())
        .map((box) => [Math.round(box.left), Math.round(box.right)])"""
    (prose,) = {tuple(each) for each in page.evaluate(edges, "article section > p")}
    code = {tuple(each) for each in page.evaluate(edges, "article section > div.cell > div.cell_input")}
    page.close()
    assert code == {prose}


@pytest.mark.browser
def test_the_first_pages_run_shows_as_many_ranks_as_are_told_and_its_number_once(site: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 600})
    page.goto((site / "made" / "timelines" / "late.html").as_uri())
    page.wait_for_function("document.querySelector('.labkit-timeline')?.labkit.state.tall > 1")
    view = page.locator(".labkit-timeline")
    ranks = view.evaluate("({ labkit }) => [...new Set(labkit.state.layout.rows.map(({ row }) => row.rank))]")
    assert ranks == [0, 1, 2, 3]
    assert view.inner_text().count("%") == 1 and not page.locator("button:visible").count()
    page.close()


def test_the_bar_of_the_longest_lesson_is_a_card_wide_and_no_other_wider(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    shares = [float(share) for share in re.findall(r"--all: ([\d.]+)%", page)]
    assert len(shares) == len(list((ROOT / "solutions").glob("[0-9]*.py"))) and max(shares) == 100


def test_the_reference_names_all_that_a_notebook_may_use(pages: dict[Path, Page], site: Path) -> None:
    anchors = pages[site / "made" / "reference.html"].anchors
    assert {f"labkit.{name}" for name in labkit.__all__} <= anchors


def test_the_catalogue_names_every_device_and_link(site: Path) -> None:
    text = (site / "made" / "hardware.html").read_text(encoding="utf-8")
    assert all(f">{name}<" in text for name in (*DEVICES, *LINKS))


def test_a_message_that_is_raised_stands_among_the_errors(site: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        labkit.local(0)
    text = (site / "made" / "errors.html").read_text(encoding="utf-8")
    longest = max(re.split(r"[\d`'\"]+", str(raised.value)), key=len).strip()
    assert len(longest) > 20 and longest in text


def test_the_first_page_plays_shows_a_timeline_and_names_every_lesson(pages: dict[Path, Page], site: Path) -> None:
    page = pages[site / "index.html"]
    text = (site / "index.html").read_text(encoding="utf-8")
    assert text.count('class="labkit-figure"') == 2
    assert {f"made/timelines/{name}.html" for name in ("late", "mended", "step")} <= set(page.loads)
    assert {f"made/lessons/{lesson}.html" for lesson in LESSONS} <= set(page.links)
    assert '<meta property="og:description"' in text
    start = '<p class="start"><a href="made/played/00_start_here.html">Start lesson 00</a>'
    assert text.count('class="start"') == 1 and text.index("<h1>") < text.index(start) < text.index('class="door"')
    before, after = (unescape(re.sub(r"<[^>]+>", "", part)) for part in text.split('class="door"', 1))
    assert "git clone YOUR-COPY-OF-LABKIT labkit && cd labkit\nmake lab" in after
    assert "git clone" not in before  # which nobody can paste as it stands
    assert f"All {len(LESSONS)} lessons" in before and "Run your own script" in before
    assert text.index('class="door"') < text.index('class="switch"') < text.index("made/timelines/late.html")


def test_the_list_of_pages_is_in_letters_that_every_font_has(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    listed = re.findall(r'<li class="toctree-l1"><a[^>]*>(.*?)</a>', text)
    assert len(listed) > 30 and [each for each in listed if not each.isascii()] == []


@pytest.mark.browser
def test_the_foot_of_a_timelines_card_says_what_stands_there_until_an_event_does(site: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto((site / "made" / "timelines" / "late.html").as_uri())
    page.wait_for_selector("canvas")
    said = "getComputedStyle(document.querySelector('.labkit-detail'), '::before').content"
    assert "click it, to read what it is" in page.evaluate(said)
    box = page.locator(".labkit-timeline canvas").first.bounding_box()
    found = []
    for down in range(4, int(box["height"]), 6):
        page.mouse.click(box["x"] + box["width"] / 3, box["y"] + down)
        found.append(page.inner_text(".labkit-detail"))
    assert any("rank" in each for each in found) and page.evaluate(said) == "none"
    page.close()


def test_the_preview_beside_a_link_is_a_picture(site: Path) -> None:
    preview = (site / "_static" / "preview.png").read_bytes()
    assert preview.startswith(b"\x89PNG") and int.from_bytes(preview[16:20], "big") >= 600  # its width


def test_each_run_of_the_gallery_has_its_timeline_and_what_labkit_said(pages: dict[Path, Page], site: Path) -> None:
    shown = [load for load in pages[site / "made" / "gallery.html"].loads if load.startswith("timelines/")]
    assert len(shown) == 5
    for each in shown:
        assert (site / "made" / each).stat().st_size > 50_000
    text = (site / "made" / "gallery.html").read_text(encoding="utf-8")
    assert "Deadlock: 3 of 4 ranks wait" in text and "rank 3 of 4 failed first" in text


FITS = [(name, width) for name in ("index.html", "made/gallery.html") for width in (320, 700, 1440)]


@pytest.mark.browser
@pytest.mark.parametrize("page_and_width", one_in(4, FITS, lambda each: f"{each[0]} at {each[1]}"))
def test_a_page_fits_its_window_and_a_frame_its_timeline(
    site: Path, browser: Any, page_and_width: tuple[str, int]
) -> None:
    name, width = page_and_width
    page = browser.new_page(viewport={"width": width, "height": 900})
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.goto((site / name).as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for frame in filter(lambda frame: frame.is_visible(), page.query_selector_all("iframe.labkit-page")):
        frame.scroll_into_view_if_needed()  # out of sight, a frame's observer sleeps, and what grows later is not told
        inner = frame.content_frame()
        high = "document.documentElement.clientHeight"
        inner.wait_for_function(
            f"Math.abs({high} - document.body.getBoundingClientRect().bottom - 12) <= 2 "
            f"&& document.documentElement.scrollHeight <= {high}",
            polling=100,  # frames of animation sleep out of sight
        )
    page.close()
    assert not wrong
