"""Slides come from the learner's version of the cells tagged for them."""

from __future__ import annotations

from labkit.lessons.slides import deck
from labkit.lessons.source import parse

PATH = "solutions/03_mean_over_ranks.py"


def test_the_deck_holds_the_tagged_cells_and_the_cut_code(source_text: str) -> None:
    slides = (deck(parse(source_text, PATH)) or "").split("\n\n---\n\n")
    assert len(slides) == 2
    assert slides[0] == (
        '---\nmarp: true\npaginate: true\ntitle: "Mean over ranks"\n---\n\n'
        "# Mean over ranks\n\nEvery rank has a number. You will find the mean, in 10 minutes."
    )
    assert slides[1].startswith(
        "## Talk about sums first\n\nAsk the class what happens with one rank.\n\n```python\ndef me"
    )
    assert 'raise NotImplementedError("Exercise 3.1: Mean and spread")' in slides[1]
    assert "BEGIN SOLUTION" not in slides[1]


def test_a_lesson_without_slides_has_no_deck() -> None:
    assert deck(parse("# %% [markdown]\n# # Title\n", PATH)) is None
