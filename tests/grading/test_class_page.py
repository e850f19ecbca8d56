"""The class page: what it says adds up, it stands alone, and likeness is told where it is and not where it is not."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from grading.made_class import made_answers, made_results, renamed
from labkit.grading.reports import similarity
from labkit.grading.reports.class_figures import Fault, class_figures
from labkit.grading.reports.class_page import Line, class_page
from labkit.grading.reports.copies import Case
from labkit.grading.reports.results import GradedExercise, GradedSubmission
from labkit.grading.reports.similarity import answers, shingles, similar
from labkit.grading.submission import Submission, read_submission

ROOT = Path(__file__).parents[2]


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action")]


def test_figures_of_a_class_add_up() -> None:
    results = made_results(300)
    figures = class_figures(results)
    assert (figures.num_students, figures.num_unread, figures.max_score) == (301, 1, 60)
    assert sum(figures.bins) == 300 and all(sum(each.counts.values()) == 301 for each in figures.exercises)
    for each in figures.exercises:
        passed = sum(e.state == "passed" for r in results for e in r.exercises if e.id == each.id)
        assert each.num_graded == 300 and each.success == passed / 300
        assert sum(fault.count for fault in each.faults) <= each.counts["failed"]
    ring = figures.exercises[2]
    assert ring.faults[0].words == "whole tensor at each step" and ring.faults[0].named


def test_what_came_back_counts_as_the_same_whatever_its_numbers() -> None:
    def failed(name: str, said: str) -> GradedSubmission:
        exercise = GradedExercise(
            "1.1", 0, 4, "failed", "T", f"Tried: x\nCame back: {said}\nHint: h", "a plain Python error"
        )
        return GradedSubmission(name, "01_x", "s", "c", (exercise,))

    figures = class_figures([failed("a", "Rank 0 has 1.25."), failed("b", "Rank 3 has 7e-3."), failed("c", "No.")])
    assert figures.exercises[0].faults == (
        Fault("Rank 0 has 1.25.", ("a", "b"), False, "a wrong result"),
        Fault("No.", ("c",), False, "a wrong result"),
    )
    nameless = [failed(name, "Rank 0 has 1.25.") for name in "abc"]
    named = [
        replace(one, exercises=(replace(one.exercises[0], mistake="off by one"),))
        for one in (failed("d", "No."), failed("e", "Rank 1 has 2."))
    ]
    faults = class_figures([*nameless, *named]).exercises[0].faults
    assert [(each.named, each.count) for each in faults] == [(True, 2), (False, 3)]  # a name first, though less common


def lines_of(results: Sequence[GradedSubmission]) -> list[Line]:
    return [Line(each.name, f"{quote(each.name)}/feedback.html", each.score, each) for each in results]


def test_the_page_stands_alone_and_escapes_what_students_made() -> None:
    results = made_results(30)
    results += [replace(results[0], name=name) for name in ("a&b", "<script>")]
    page = class_page(
        lines_of(results), "Ring <all> reduce", [Case(("a&b", "<script>"), "much the same", 0.93, ("1.4", "1.2"))]
    ).decode()
    elements = Elements()
    elements.feed(page)
    assert elements.tags.count("script") == 1 and not {"img", "link"} & set(elements.tags)
    links = [link.partition("#")[0] for link in elements.links if link != "#marks"]
    assert not [link for link in links if not link.endswith(("/feedback.html", "copies.html")) or ":" in link]
    assert "Ring &lt;all&gt; reduce" in page and "&lt;script&gt;" in page and "torn &lt;b&gt;" in page
    assert "default-src 'none'" in page and "prefers-color-scheme: dark" in page
    assert (
        "<h1>33 submissions: " in page
        and f'<a href="{quote("torn <b>")}/feedback.html">1 could not be graded</a>' in page
        and "93 %" in page
        and "never a verdict" in page
    )
    assert len(re.findall(r'<th scope="row"><a href="student%20\d+/feedback.html">', page)) == 30
    assert len(page) < 100_000


def test_a_class_of_one_that_nobody_could_read_has_a_page() -> None:
    page = class_page(lines_of(made_results(0)), "Lesson", []).decode()
    assert (
        "1 submission: 1 needs a look" in page
        and ">1 could not be graded</a>" in page
        and "None beyond what the task" in page
    )


def test_bonus_is_said_in_points_and_a_mistake_without_a_name_in_words() -> None:
    results = made_results(30)
    most = max(each.exercises[-1].points for each in results)
    page = class_page(lines_of(results), "Lesson").decode()
    assert most == 24
    assert "</b> points, bonus included</figcaption>" in page and "dashed: full marks, 60</p>" in page
    with_bonus = [each for each in results if each.exercises[-1].points]
    for each in with_bonus:
        parts = (100 * (each.score - 24) / 84, 100 * 24 / 84)  # of the longest bar: full marks and bonus
        bar = '<i style="width:{:.1f}%"></i><i class="bonus" style="width:{:.1f}%"></i><span class="sum">24</span>'
        own = re.search(rf'<th scope="row"><a href="{quote(each.name)}/.*?</tr>', page, re.S)
        assert own and bar.format(*parts) in own[0] and f"<b>{each.score:g}</b>" in own[0]
    assert page.count('<span class="sum">24</span>') == len(with_bonus)
    assert "of 60 (dashed), lighter: bonus</th>" in page
    plain = [replace(each, exercises=each.exercises[:-1]) for each in results]
    without = class_page(lines_of(plain), "Lesson").decode()
    assert "of 60</th>" in without and "lighter: bonus" not in without and 'class="full"' not in without
    late = class_page(
        [replace(each, score=each.score / 2, late="50 % off") for each in lines_of(results)], "L"
    ).decode()
    assert '<span class="sum">' not in late  # half of a sum is not the sum of what was earned
    href = r'href="(\S+)/feedback.html#(1.\d)" title="(Rank \d has \S+ in element 4.)"'
    kind = rf"<b>(\d+)×</b> <span>a wrong result</span></button>(?:: |, as )<a {href}>“\4”</a>"
    by_name = {quote(each.name): each for each in results}
    for count, name, slug, said in (found := re.findall(kind, page)):
        [example] = [each for each in by_name[name].exercises if each.id == slug]
        assert int(count) and example.state == "failed" and not example.mistake and said in example.said
    assert len(found) > 6
    shares = re.findall(r'<span class="share">(\d+) of (\d+)</span>', page)
    assert {of for _, of in shares} == {"30"} and [int(count) for count, _ in shares] == sorted(
        int(count) for count, _ in shares
    )


def test_a_row_says_what_is_special_beside_its_name_and_those_to_look_at_stand_first() -> None:
    results = made_results(8)
    columns = re.compile(r'<th scope="col"[^>]*>([A-Za-z][\w +:,()]+)</th>')
    plain = class_page(lines_of(results[:-1]), "L").decode().partition("</table>")[0]
    assert (
        columns.findall(plain) == ["Student", "Points", "of 60 (dashed), lighter: bonus"]
        and "chip" not in plain.partition("<tbody>")[2]
    )
    lines = lines_of(results[:-1])
    lines[2], lines[5] = replace(lines[2], late="20 % off"), replace(lines[5], asks=1)
    special = class_page(lines, "L").decode().partition("<tbody>")[2].partition("</table>")[0]
    rows = re.findall(r"<tr.*?</tr>", special, re.S)
    assert [each for each in rows if "asks to look again" in each] == rows[:1] and 'class="look"' in rows[0]
    assert sum(each.count("20 % off") for each in rows) == 1
    asked = re.search(r'<a href="([^"]+)">1 asks to look again</a>', class_page(lines, "L").decode())
    assert asked and asked[1] == lines[5].href
    told = {False: "asks to look again: <u>read it</u>", True: "asks to look again: <u>answer</u>"}
    assert all(words in class_page(lines, "L", desk=desk).decode() for desk, words in told.items())
    unread = [results[-1], replace(results[-1], name="zoe")]
    page = class_page(lines_of([*results[:-1], *unread]), "L").decode()
    assert '<a href="#marks">2 could not be graded</a>' in page
    rows = re.findall(r'<th scope="row"><a href="[^"]+">\s*([^<]+?)\s*</a>', page)
    assert rows[:2] == ["torn &lt;b&gt;", "zoe"]
    lines = {each.name: each for each in lines_of(results)}
    points = [lines[each].score for each in rows if each in lines and not lines[each].needs_a_look]
    assert points == sorted(points) and len(points) > 4  # whoever has fewest stands before the others
    assert ": 2 need a look</h1>" in page and "2 could not be graded</a>. They stand first." in page


def test_what_is_off_for_lateness_is_told_with_what_it_is_taken_from() -> None:
    line = next(each for each in lines_of(made_results(30)) if each.score == 84)
    page = class_page([replace(line, score=67.2, late="20 % off")], "L").decode()
    assert "late: 20 % off 84</span>" in page and "<b>67.2</b>" in page
    assert "late: 20 % off</span>" in class_page([replace(line, late="20 % off")], "L").decode()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("A deadlock: every rank that is left waits.", "a deadlock"),
        ("Rank 3 raised TypeError: no.", "raises TypeError"),
        ("It raised KeyError: 3.", "raises KeyError"),
        ("It did not finish in time: an endless loop, or a message that never comes.", "no end in time"),
        ("It took more than 5 s, all that this run had: an endless loop, or too much to do.", "no end in time"),
        ("What came back cannot be judged: a set.", "no answer that can be read"),
        ("No result within 25 s: rank 0 still ran.", "no end in time"),
        ("Not tried: the 300 s for all cases were used up.", "not tried"),
        ("Rank 2 printed more than 64 MB and was ended.", "a rank that ended early"),
        ("Rank 4 has 0.422 in element 4.", "a wrong result"),
    ],
)
def test_what_no_check_has_a_name_for_is_told_by_kind(said: str, kind: str) -> None:
    failed = GradedExercise("1.1", 0, 4, "failed", "T", f"Tried: x\nCame back: {said}", "")
    result = GradedSubmission("a", "01_x", "s", "c", (failed,))
    assert class_figures([result]).exercises[0].faults == (Fault(said, ("a",), False, kind),)
    assert (
        f'<span>{kind}</span></button>: <a href="a/feedback.html#1.1" title="{said}">“{said}”</a>'
        in class_page(lines_of([result]), "L").decode()
    )


def test_a_gradebook_that_has_no_mark_of_what_could_not_be_graded_makes_nothing_a_bonus() -> None:
    results = made_results(3)
    torn = replace(results[-1], exercises=tuple(replace(each, max_points=0) for each in results[-1].exercises))
    figures = class_figures([torn, *results[:-1]])
    assert [each.max_points for each in figures.exercises] == [4, 8, 12, 16, 20, 0] and figures.most_bonus in (0, 24)


PLACES = """(rows) => rows.map((row) => {
  const [squares, name, points] = [".square", "th", ".extra"].map((each) => [...row.querySelectorAll(each)]
    .map((cell) => cell.getBoundingClientRect()));
  return { tops: [...new Set(squares.map(({ top }) => top - name[0].bottom >= -1))], lines: new Set(squares.map(
    ({ top }) => top)).size, lefts: squares.map(({ left }) => Math.round(left)), right: Math.round(points[0].right) };
})"""
NUMBERS = "(all) => all.map((each) => getComputedStyle(each, '::before').content.slice(1, -1))"


@pytest.mark.browser
def test_on_a_phone_squares_are_one_row_below_the_name_and_points_stand_at_the_right(
    tmp_path: Path, browser: Any
) -> None:
    (file := tmp_path / "class.html").write_bytes(class_page(lines_of(made_results(40)), "Lesson"))
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.goto(file.as_uri())
    rows = page.eval_on_selector_all("#marks tbody tr", PLACES)
    assert len(rows) == 41 and all(each["tops"] == [True] and each["lines"] == 1 for each in rows)
    assert {tuple(each["lefts"]) for each in rows} == {tuple(rows[0]["lefts"])}
    table = page.eval_on_selector("#marks", "(each) => each.getBoundingClientRect().right")
    assert all(abs(each["right"] - table) <= 1 for each in rows)
    numbers = page.eval_on_selector_all("#marks tbody tr:nth-child(2) td.square", NUMBERS)
    assert numbers == ["1.1", "1.2", "1.3", "1.4", "1.5", "1.6"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    cut = "(all) => all.map((each) => each.scrollWidth - each.clientWidth)"
    assert page.eval_on_selector_all(".wide", cut) == [0]  # how each exercise went is there without scrolling sideways
    page.set_viewport_size({"width": 1440, "height": 900})
    page.click("header a")  # opens beside the list, as a row's link does
    assert page.locator("#panel.open").count() == 1
    assert page.locator("#marks tr[aria-current] th a").first.inner_text() == "torn <b>"
    page.click("#back")
    assert page.locator("#panel.open").count() == 0 and page.locator("#panel li").first.is_visible()
    example = page.locator("#panel li a").first
    wanted = example.get_attribute("href").split("/")[0]
    example.click()  # what nobody named is read there, too
    assert page.locator("#panel.open").count() == 1
    assert page.locator("#marks tr[aria-current] th a").first.get_attribute("href").startswith(f"{wanted}/")
    page.close()


@pytest.mark.browser
def test_a_mistake_shows_who_makes_it_and_a_row_opens_beside_the_list(tmp_path: Path, browser: Any) -> None:
    results = made_results(40)
    (file := tmp_path / "class.html").write_bytes(class_page(lines_of(results), "Lesson"))
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(file.as_uri())
    assert page.locator("#marks tbody tr").evaluate_all(BELOW_THE_FOLD) <= 41 - 28
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    card, table = (page.locator(each).bounding_box() for each in (".list", "#marks"))
    assert card and table and table["x"] + table["width"] <= card["x"] + card["width"]
    who = [r.name for r in results for e in r.exercises if e.id == "1.4" and e.mistake == "one chunk is missing"]
    page.locator("#panel li").filter(has_text="1.4").get_by_role("button", name="one chunk is missing").click()
    assert page.locator("#shown").inner_text() == f"{len(who)} of 41: 1.4 one chunk is missing"
    names = "(rows) => rows.filter((row) => !row.hidden).map((row) => row.querySelector('a').textContent.trim())"
    assert sorted(page.locator("#marks tbody tr").evaluate_all(names)) == sorted(who)
    page.get_by_role("button", name="show all").click()
    assert page.locator("#marks tbody tr:visible").count() == 41 and page.locator("#hint").is_visible()
    page.locator("#marks tbody tr").nth(7).locator("td.number").click()  # wherever on a row one clicks
    assert page.locator("#panel.open").count() == 1
    assert page.locator("#marks tr[aria-current]").evaluate("(row) => row.sectionRowIndex") == 7
    page.close()


BELOW_THE_FOLD = "(rows) => rows.filter((row) => row.getBoundingClientRect().bottom > innerHeight).length"


@pytest.mark.parametrize(
    ("top", "step", "labels"),
    [
        (
            60,
            5,
            ["0–4", "5–9", "10–14", "15–19", "20–24", "25–29", "30–34", "35–39", "40–44", "45–49", "50–54", "55–60"],
        ),
        (84, 10, ["0–9", "10–19", "20–29", "30–39", "40–49", "50–59", "60–69", "70–79", "80–84"]),
        (4, 1, ["0", "1", "2", "3–4"]),
        (10.5, 1, [*map(str, range(10)), "10–10.5"]),
        (1000, 100, [*(f"{at}–{at + 99}" for at in range(0, 900, 100)), "900–1000"]),
    ],
)
def test_bars_of_the_histogram_are_in_points_and_the_last_holds_the_most(
    top: float, step: int, labels: list[str]
) -> None:
    def result(name: str, points: float) -> GradedSubmission:
        return GradedSubmission(name, "01_x", "s", "c", (GradedExercise("1.1", points, top, "failed", "T"),))

    results = [result("none", 0), result("all", top), result("half", top / 2)]
    figures = class_figures(results)
    assert figures.step == step and len(figures.bins) == len(labels) and sum(figures.bins) == 3
    assert figures.bin_of(top) == len(labels) - 1 and figures.bin_of(step - 0.5) == 0 and figures.bin_of(step) == 1
    page = class_page(lines_of(results), "L").decode()
    assert re.findall(r'data-bin="\d+" aria-pressed="false" title="(\S+) points', page) == labels


def test_parts_of_a_bar_are_of_those_its_number_counts_and_median_and_mean_have_no_idle_decimals() -> None:
    results = made_results(40)
    page = class_page(lines_of(results), "Lesson").decode()
    assert figures_of(page) == [100.0] * 12 and 'class="not_graded" style' not in page
    both = re.search(r"Median (\S+), mean (\S+)</b>", page)
    figures = class_figures(results)
    assert both and [float(each) for each in both.groups()] == [round(figures.median, 1), round(figures.mean, 1)]
    assert len({each.count(".") for each in both.groups()}) == 1
    alike = class_page(lines_of([replace(results[0], name=name) for name in "ab"]), "Lesson").decode()
    assert f"Median {results[0].score:g}, mean {results[0].score:g}</b>" in alike


def figures_of(page: str) -> list[float]:
    """Return how many percent the parts of each stacked bar add up to."""
    bars = re.findall(r'<div class="stack".*?</div>', page, re.S)
    return [round(sum(map(float, re.findall(r"width:([\d.]+)%", bar))), 1) for bar in bars]


@pytest.mark.in_turn
def test_a_renamed_copy_in_a_class_is_found_and_nobody_else() -> None:
    made = made_answers([f"student {number}" for number in range(120)])
    made["copy"] = renamed(made["student 7"])
    made["half"] = {number: made["student 9"][number] for number in ("1.1", "1.2", "1.3", "1.4")} | {
        number: made["student 11"][number] for number in ("1.5", "1.6")
    }
    handed_out = {number: source[:80] for number, source in made["student 0"].items()}
    found = similar(made, handed_out)
    assert {(pair.first, pair.second) for pair in found} == {("copy", "student 7"), ("half", "student 9")}
    assert found[0].share > 0.95 and set(found[1].exercises) == {"1.1", "1.2", "1.3", "1.4"}


@pytest.mark.in_turn
def test_what_was_handed_out_and_what_all_wrote_make_nobody_alike() -> None:
    made = made_answers([f"student {number}" for number in range(40)])
    all_wrote = next(iter(made_answers(["everybody"], seed=9).values()))
    same = {name: {"1.1": cells["1.1"] + "\n" + all_wrote["1.2"]} for name, cells in made.items()}
    assert similar(same, {}) == []
    untouched = {name: {"1.1": all_wrote["1.1"]} for name in made}
    assert similar(untouched, {"1.1": all_wrote["1.1"]}) == []


ODD = [
    "", "'" * 5000, '"' * 200_001, "(" * 200_000, "\x00\ud800 é ∑", "x=1\n" * 90_000, '"""' + "\\" * 99_999,
    '\\"""z' * 60_000, "'\\'" * 100_000, '"' + '\\"' * 150_000, "f'" * 100_000 + "\\",
]  # fmt: skip


@pytest.mark.parametrize("source", ODD, ids=range(len(ODD)))
def test_no_source_is_too_odd_or_too_long_to_be_compared(source: str) -> None:
    assert len(shingles(source)) <= 20_000


def test_right_answers_written_apart_are_not_told_as_alike(submissions: Callable[[str], Path]) -> None:
    content = json.loads((ROOT / "notebooks" / "02_ring_all_reduce.ipynb").read_text())
    for cell in content["cells"]:
        cell["source"] = "".join(cell["source"])
    folder = submissions("02")
    apart = ("right_as_taught", "right_in_few_lines", "right_one_loop_per_collective")
    found = {
        name: answers(read_submission(Submission(name, folder / f"{name}.ipynb")).cells, content) for name in apart
    }
    handed_out = {
        c["metadata"]["labkit"]["exercise"]: c["source"] for c in content["cells"] if c["id"].startswith("exer")
    }
    assert all(len(cells) == 6 for cells in found.values())
    assert similar(found, handed_out) == []
    copied = similar({**found, "copy": renamed(found["right_in_few_lines"])}, handed_out)
    assert [(pair.first, pair.second) for pair in copied] == [("copy", "right_in_few_lines")]


def test_texts_and_comments_do_not_count_and_what_follows_them_does() -> None:
    plain = "def f(x):\n    y = x[1] + 2\n    return y.sum(3)\n"
    commented = 'def g(z):\n    "Say \\" it."\n    w = z[1] + 2  # isn\'t it\n    return w.sum(3)\n'
    assert shingles(plain) == shingles(commented) != shingles(plain.replace("sum", "mean"))


@pytest.mark.in_turn
def test_huge_answers_are_compared_by_a_bounded_part_that_is_the_same_in_whoever_copies() -> None:
    def huge(seed: int) -> dict[str, str]:
        draw = random.Random(seed)
        return {"e": " ".join(draw.choice("+-*/%&|^<>=~") + str(draw.randrange(10**6)) for _ in range(9000))}

    submissions = {f"student {seed}": huge(seed) for seed in range(4)} | {"copy of 2": huge(2)}
    assert len(shingles(huge(0)["e"])) > 2 * similarity._MOST_OF_ONE
    assert all(len(similarity._own(cells, {})) == similarity._MOST_OF_ONE for cells in submissions.values())
    [pair] = similar(submissions, {})
    assert (pair.first, pair.second, pair.share) == ("copy of 2", "student 2", 1.0)
