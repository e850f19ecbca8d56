"""A lesson that plays in the page: at a phone's width, offline, light and dark; what one answers is judged there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit.lessons.played import LESSONS, played_page
from tests.sampling import one_in

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.browser]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("played")


@pytest.fixture
def opened(browser: Any, folder: Path) -> Iterator[Any]:
    """A function that opens a lesson offline; at the end nothing has gone wrong in any page."""
    contexts, problems = [], []

    def open_page(number: str, width: int = 400, scheme: str = "light") -> Any:
        path = folder / f"{number}.html"
        if not path.exists():
            (source,) = (ROOT / "solutions").glob(f"{number}_*.py")
            path.write_text(played_page(source), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("requestfailed", lambda request: problems.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not problems


SEEN = [(number, *how) for how in ((400, "dark"), (1440, "light")) for number in LESSONS]


@pytest.mark.in_turn
@pytest.mark.parametrize("seen", one_in(len(LESSONS) + 1, SEEN, lambda each: "-".join(map(str, each))))
def test_it_fits_its_width_and_shows_what_came_out_after_a_guess(opened: Any, seen: tuple[str, int, str]) -> None:
    number, width, scheme = seen
    page = opened(number, width, scheme)
    hidden = page.locator("[data-after]")
    assert hidden.count() and not any(hidden.nth(at).is_visible() for at in range(hidden.count()))
    for form in page.query_selector_all("form[data-guess]"):
        form.query_selector("input").fill("10")
        form.query_selector("button").click()
        assert form.query_selector(".said").inner_text().startswith("It is ")
    assert all(hidden.nth(at).is_visible() for at in range(hidden.count()))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("canvas").count() or page.locator("svg").count()


@pytest.mark.in_turn
def test_a_guess_is_compared_in_the_words_of_the_notebook_and_no_number_is_asked_again(opened: Any) -> None:
    page = opened("00")
    form = page.locator('form[data-guess="all_reduce_ms"]')
    form.locator("input").fill("ten")
    form.get_by_role("button", name="Compare").click()
    assert form.locator(".said").inner_text() == "Write a number."
    form.locator("input").fill("10")
    form.get_by_role("button", name="Compare").click()
    assert form.locator(".said").inner_text() == "It is 0.448 ms. Your guess: too high by a factor of 22."


@pytest.mark.in_turn
def test_a_find_gives_its_hint_then_its_reason(opened: Any) -> None:
    page = opened("00")
    form = page.locator("form[data-question]")
    form.locator('[name="rank"]').fill("5")
    form.locator('[name="waits_in"]').select_option("all_reduce")
    form.locator('[name="cause"]').select_option("has a slow link")
    form.get_by_role("button", name="Answer").click()
    said = form.locator(".said").inner_text()
    assert said.startswith("Not yet. Still wrong: what makes that rank late.") and "Its bars are the shortest" in said
    form.locator('[name="cause"]').select_option("loads its data late")
    form.get_by_role("button", name="Answer").click()
    assert form.locator(".said").inner_text().startswith("Right. Rank 5 gets each batch about 10 ms after the others.")
