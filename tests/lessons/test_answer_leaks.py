"""No text of an answer reaches learners: not in the notebook, not on a slide, not in another lesson."""

from __future__ import annotations

from pathlib import Path

from labkit.lessons.build import build, check

NAME = "03_mean_over_ranks"


def add(course: Path, cell: str, before: str | None = None) -> None:
    path = course / "solutions" / f"{NAME}.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + cell if before is None else text.replace(before, cell + before), encoding="utf-8")
    build(course, execute=False)


def leaks(course: Path) -> list[str]:
    return [f"{each.file}: {each.why}" for each in check(course) if "answer" in each.why]


def test_no_cut_line_is_in_what_was_built(course: Path) -> None:
    source = (course / "solutions" / f"{NAME}.py").read_text(encoding="utf-8")
    learner = (course / "notebooks" / f"{NAME}.ipynb").read_text(encoding="utf-8")
    slides = (course / "slides" / f"{NAME}.md").read_text(encoding="utf-8")
    for secret in (
        "total += value",
        "everything_added_up",
        "_as_tensor_of_one_number",
        "only instructors",
        "is linear",
    ):
        assert secret in source
        assert secret not in learner
        assert secret not in slides
    assert leaks(course) == []


def test_an_answer_left_in_a_demonstration_below_is_found_with_its_cell(course: Path) -> None:
    add(course, "\n# %%\neverything_added_up = torch.ones(1)\ndist.all_reduce(everything_added_up)\n")
    assert leaks(course) == [
        f"notebooks/{NAME}.ipynb: shows a line of the answer to exercise mean_over_ranks of {NAME}: "
        "'dist.all_reduce(everything_added_up)'"
    ]


def test_an_answer_left_on_a_slide_is_found(course: Path) -> None:
    add(
        course,
        '\n# %% [markdown] tags=["slide-only"]\n# ## Answer\n#\n'
        "#     largest_value,   smallest_value = max(self.values), min(self.values)\n",
    )
    assert len(leaks(course)) == 1
    assert leaks(course)[0].startswith(f"slides/{NAME}.md: shows a line of the answer to exercise mean_and_spread ")


def test_a_line_taught_above_the_exercise_gives_nothing_away(course: Path) -> None:
    taught = "# %% [markdown]\n# Sums over ranks:\n#\n#     dist.all_reduce(everything_added_up)\n\n"
    add(course, taught, before='# %% tags=["exercise"] exercise="mean_over_ranks"')
    assert leaks(course) == []


def test_a_whole_answer_above_the_exercise_is_found(course: Path) -> None:
    taught = (
        "# %% [markdown]\n# Sums over ranks:\n#\n#     dist.all_reduce(everything_added_up)\n"
        "#     return everything_added_up.item() / dist.get_world_size()\n\n"
    )
    add(course, taught, before='# %% tags=["exercise"] exercise="mean_over_ranks"')
    assert len(leaks(course)) == 1


def test_the_text_of_a_solution_cell_is_an_answer_too(course: Path) -> None:
    add(course, "\n# %% [markdown]\n# The mean is linear, so the mean of equal shares' means is the mean.\n")
    assert len(leaks(course)) == 1
    assert "the solution cell at line" in leaks(course)[0]


def test_an_answer_in_another_lessons_notebook_is_found(course: Path) -> None:
    (course / "solutions" / "04_next.py").write_text(
        "# %% [markdown]\n# # Next\n\n# %%\neverything_added_up = 3.0\ndist.all_reduce(everything_added_up)\n",
        encoding="utf-8",
    )
    build(course, execute=False)
    assert [each.partition(":")[0] for each in leaks(course)] == ["notebooks/04_next.ipynb"]


def test_what_every_program_says_gives_nothing_away_in_another_lesson(course: Path) -> None:
    path = course / "solutions" / f"{NAME}.py"
    cut = "    everything_added_up = "
    text = path.read_text(encoding="utf-8")
    assert cut in text
    path.write_text(text.replace(cut, f"    optimizer.zero_grad()\n{cut}", 1), encoding="utf-8")
    (course / "solutions" / "04_next.py").write_text(
        "# %% [markdown]\n# # Next\n\n# %%\noptimizer.zero_grad()\n", encoding="utf-8"
    )
    build(course, execute=False)
    assert leaks(course) == []
