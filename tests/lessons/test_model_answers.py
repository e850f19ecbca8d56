"""The model answers of `write` questions: their numbers are the lesson's, their rubrics worth what the heading says."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from labkit.lessons.course import exercise_titles
from labkit.lessons.source import load
from tests.checks.lesson_cells import lesson, namespace

SOLUTIONS = Path(__file__).parents[2] / "solutions"
ASKED = {
    "sixteen_devices": "01_data_parallel",
    "sixty_four_gpus": "05_ddp_for_real_models",
    "four_or_eight_stages": "08_pipeline",
}


def model(slug: str) -> str:
    """Return the model answer in one line."""
    (cell,) = (each for each in load(SOLUTIONS / f"{ASKED[slug]}.py").cells if each.role == "write")
    assert cell.exercise == slug
    return " ".join(cell.source.split())


@pytest.mark.parametrize("slug", ASKED)
def test_a_rubric_has_three_items_and_the_learner_gets_a_place_to_write(slug: str) -> None:
    assert list(load(SOLUTIONS / f"{ASKED[slug]}.py").rubrics[slug].values()) == [2, 2, 2]
    notebook = (SOLUTIONS.parent / "notebooks" / f"{ASKED[slug]}.ipynb").read_text(encoding="utf-8")
    assert slug not in {each for each, _, _ in exercise_titles(SOLUTIONS)[ASKED[slug][:2]]}, "no lane on the board"
    assert "Write two to five sentences here" in notebook and model(slug)[:60] not in notebook


def test_sixteen_devices_move_as_long_as_the_model_answer_says() -> None:
    copies_ms = 1e3 * 2 * 15 * 134_283_264 / 24e9
    others_ms = 1e3 * 3 * 15 / 16 * 8192 * 2048 * 4 / 24e9
    starts_ms = 1e3 * 5 * 15 * 8e-6
    compute_ms = 100.6 / 16
    said = f"at 24 GB/s are {copies_ms:.0f} ms, and inputs and outputs add {others_ms:.0f} ms"
    assert said in model("sixteen_devices")
    total = copies_ms + others_ms + starts_ms + compute_ms
    assert f"from 99 to {total:.0f} ms" in model("sixteen_devices") and f"to {compute_ms:.1f} ms" in model(
        "sixteen_devices"
    )


def test_the_bubbles_of_the_model_answer_are_the_formulas() -> None:
    four, eight = 3 / (8 + 3), 7 / (16 + 7)
    longer = (1 - four) / (1 - eight) - 1
    for words in (f"3/11 = {four:.1%}", f"7/23 = {eight:.1%}", f"{longer:.1%} more"):
        assert words.replace("%", " %") in model("four_or_eight_stages")


def test_weak_and_strong_scaling_are_as_the_lesson_printed_them() -> None:
    executed = nbformat.read(SOLUTIONS / "05_ddp_for_real_models.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    printed = re.search(r"it is ([\d.]+): [^'\"]*64 GPUs: [^'\"]*weak efficiency (\d+)%", str(executed))
    assert printed is not None
    weak = int(printed[2]) / 100
    said = model("sixty_four_gpus")
    assert f"only {printed[1]} times as fast" in said and f"16 x {weak:.2f} is {16 * weak:.0f} times sooner" in said


@pytest.mark.long
def test_a_critical_batch_on_64_gpus_is_as_fast_as_the_model_answer_says() -> None:
    (cell,) = (each for each in lesson("05").cells if "def step_ms" in each.source)
    step_ms = namespace(number="05", extra=cell.source.partition("alone = ")[0])["step_ms"]
    alone, shared = step_ms(1, 4096), step_ms(64, 1024)
    said = f"is {shared:.1f} ms in place of {alone:.1f} ms alone, {alone / shared:.1f} times as fast"
    for words in (said, f"done {16 * alone / shared:.0f} times sooner"):
        assert words in model("sixty_four_gpus")
