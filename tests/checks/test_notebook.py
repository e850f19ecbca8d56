"""What a learner sees in a cell: words for bad use, steady text, escaped HTML, hints in steps."""

from __future__ import annotations

import pytest
import torch

import labkit
from labkit.checks import notebook
from labkit.checks.failures import learners_lines
from labkit.checks.rooms import exercises, find
from labkit.errors import ConfigError
from tests.checks.lesson_cells import namespace


def test_an_unknown_exercise_is_answered_with_what_comes_near() -> None:
    result = labkit.check("ring_plans", print)
    assert not result.passed
    assert "there is no exercise 'ring_plans'; did you mean 'ring_plan'?" in repr(result)
    assert "there is no exercise '2.99'; the name is in the cell that checks the exercise" in repr(labkit.hint("2.99"))


def test_the_wrong_number_of_functions_is_answered_with_the_right_call() -> None:
    result = labkit.check("count_bytes", lambda num_bytes, world_size: 0)
    assert repr(result) == (
        "Exercise count_bytes: not checked.\n"
        'Exercise count_bytes asks for 2 functions, you gave 1: labkit.check("count_bytes", root_bytes, ring_bytes).'
    )
    assert "you gave none" in repr(labkit.check("ring_sum"))


def test_a_call_instead_of_the_function_is_answered_with_the_right_call() -> None:
    result = labkit.check("ring_sum", None)  # type: ignore[arg-type]
    assert "You gave nothing (None); hand over the function itself, without calling it" in repr(result)
    assert 'labkit.check("ring_sum", ring_sum)' in repr(result)
    assert "You gave a Tensor" in repr(labkit.check("ring_sum", torch.ones(2)))  # type: ignore[arg-type]


def test_functions_in_another_order_are_told_apart_by_name() -> None:
    names = namespace()
    assert labkit.check("count_bytes", names["ring_bytes"], names["root_bytes"]).passed


def test_a_stub_that_another_function_calls_is_named() -> None:
    names = namespace(solved=False)
    source = "def ring_sum(tensor, group=None):\n    ring_plan(0, 2)\n"
    exec(compile(source, "<cell x>", "exec"), names)
    text = repr(labkit.check("ring_sum", names["ring_sum"]))
    assert "ring_sum calls something that is not done yet. Exercise 2.3: The ring as a plan." in text


def test_an_exception_is_shown_with_the_learners_own_lines_only() -> None:
    names = namespace(extra="def chunk_bounds(numel, num_chunks):\n    size = numel // (num_chunks - num_chunks)\n")
    text = repr(labkit.check("chunk_bounds", names["chunk_bounds"]))
    assert "raised ZeroDivisionError: integer division or modulo by zero." in text
    assert "line 2, in chunk_bounds:  size = numel // (num_chunks - num_chunks)" in text
    assert "labkit/" not in text


def test_something_that_cannot_be_judged_is_named() -> None:
    text = repr(labkit.check("chunk_bounds", lambda numel, num_chunks: object()))
    assert "What came back cannot be judged: result.values[0] is of type object" in text


def test_what_is_shown_is_the_same_every_time_and_holds_no_address() -> None:
    names = namespace()
    first, second = (repr(labkit.check("chunk_bounds", names["chunk_bounds"])) for _ in range(2))
    assert first == second
    assert " at 0x" not in first
    wrong = [repr(labkit.check("chunk_bounds", lambda numel, num_chunks: [])) for _ in range(2)]
    assert wrong[0] == wrong[1]


def test_cases_that_all_passed_unfold_under_the_line_that_says_so_and_others_are_seen() -> None:
    names = namespace()
    passed = labkit.check("count_bytes", names["root_bytes"], names["ring_bytes"])
    html = passed._repr_mimebundle_()["text/html"]
    folded = html[html.index("<details>") : html.index("</details>")]
    assert passed.passed and folded.index("passed, all") < folded.index("</summary>") < folded.index("  pass  ")
    assert repr(passed).count("  pass  ") == html.count("  pass  ") > 1
    assert "✓" in folded[: folded.index("passed, all")] and "✓" not in repr(passed)
    failed = labkit.check("count_bytes", lambda num_bytes, world_size: 0, names["ring_bytes"])
    html = failed._repr_mimebundle_()["text/html"]
    assert not failed.passed and "<details" not in html and "✓" not in html


def test_html_is_escaped() -> None:
    result = labkit.check("chunk_bounds", lambda numel, num_chunks: "<script>alert(1)</script>")
    bundle = result._repr_mimebundle_()
    assert "<script>" in bundle["text/plain"]
    assert "<script>" not in bundle["text/html"]
    assert "&lt;script&gt;" in bundle["text/html"]


def test_hints_come_one_step_at_a_time_and_end_with_the_third(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_next_hint", {})
    shown = [repr(labkit.hint("chunk_bounds")) for _ in range(4)]
    hints = exercises("ring_all_reduce")["chunk_bounds"].hints
    assert shown[0] == f"Hint 1 of 3 for chunk_bounds: {hints[0]}"
    assert shown[1] == f"Hint 2 of 3 for chunk_bounds: {hints[1]}"
    assert shown[2] == f"Hint 3 of 3 for chunk_bounds (the last one): {hints[2]}"
    assert shown[3] == f"There are no more hints for chunk_bounds. The last one again: {hints[2]}"


def test_a_number_a_function_and_a_functions_name_lead_to_the_exercise(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_stage() -> None: ...

    class TopK: ...

    leads: list[tuple[object, str]] = [
        ("run_stage", "one_batch"), (run_stage, "one_batch"), ("TopK", "few_entries"), (TopK, "few_entries"),
        ("2.3", "ring_plan"), ("9.2", "find_deadlock"), ("checkpointed", "recompute"), ("linear_later", "linear_later"),
    ]  # fmt: skip
    for asked, slug in leads:
        monkeypatch.setattr(notebook, "_next_hint", {})
        assert repr(labkit.hint(asked)).startswith(f"Hint 1 of 3 for {slug}: "), asked
    several = 'labkit.hint("server_hybrid") (Exercise 7.4) and labkit.hint("data_and_pipeline") (Exercise 9.6)'
    assert several in repr(labkit.hint("hybrid_step"))
    assert 'labkit.answer("starved_step", ...): a wrong answer brings a hint' in repr(labkit.hint("starved_step"))


def test_a_number_is_answered_with_a_call_by_name() -> None:
    text = repr(labkit.check(2.1, print))  # type: ignore[arg-type]
    assert "You gave a float where the exercise's name belongs" in text
    assert 'in quotes: labkit.check("chunk_bounds", chunk_bounds).' in text
    assert 'labkit.hint("chunk_bounds")' in repr(labkit.hint(2.1))  # type: ignore[arg-type]


def test_a_function_in_the_place_of_the_name_is_named_without_its_address() -> None:
    text = repr(labkit.check(namespace()["ring_sum"]))
    assert "You gave the function ring_sum where the exercise's name belongs" in text
    assert "0x" not in text


def test_another_exercises_function_is_told_where_it_belongs() -> None:
    text = repr(labkit.check("ring_plan", namespace()["ring_sum"]))
    assert "ring_sum is what exercise ring_sum asks for; exercise ring_plan is about ring_plan" in text


@pytest.mark.in_turn
def test_what_ranks_print_in_the_failing_case_is_shown_with_their_numbers_and_cut() -> None:
    source = """
def naive_all_reduce(tensor):
    for i in range(9):
        print("step", i, "of", tensor.numel())
"""
    text = repr(labkit.check("naive_all_reduce", namespace(extra=source)["naive_all_reduce"]))
    assert "what your ranks printed in this case:" in text
    assert "[rank 0] step 0 of 7" in text
    assert "[rank 1] step 5 of 7" in text
    assert "step 0 of 5" not in text
    assert "... and 11 more lines" in text


def test_a_notebook_cells_lines_are_shown_with_the_cells_number() -> None:
    report = (
        "Traceback (most recent call last):\n"
        '  File "/somewhere/labkit/checks/rank_side.py", line 28, in run_cases\n    result = driver()\n'
        "  Cell In[7], line 4, in ring_sum\n    tensor.foo()\n"
        "AttributeError: 'Tensor' object has no attribute 'foo'\n"
    )
    assert learners_lines(report) == "Cell In[7], line 4, in ring_sum:  tensor.foo()"


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("exercise_id", "name"), [("naive_all_reduce", "naive_all_reduce"), ("tree_all_reduce", "tree_all_reduce")]
)
def test_a_plain_python_error_gets_its_line_and_no_guess(exercise_id: str, name: str) -> None:
    source = f"def {name}(tensor, group=None):\n    tensor.foo()\n"
    text = repr(labkit.check(exercise_id, namespace(extra=source)[name]))
    assert "AttributeError: 'Tensor' object has no attribute 'foo'" in text
    assert f"line 2, in {name}:  tensor.foo()" in text
    assert "hint:" not in text


def test_every_exercise_has_three_hints_cases_and_mistakes_with_unlike_names() -> None:
    for exercise in [*exercises("ring_all_reduce").values(), *exercises("collectives").values()]:
        assert len(set(exercise.hints)) == 3
        names = [case.name for case in exercise.visible]
        assert len(names) == len(set(names)) >= 2
        assert len(exercise.mistakes) >= 3


@pytest.mark.parametrize("bad", ["", "2", "2.4", "ring", "Ring_plan"])
def test_find_refuses_what_is_no_exercise(bad: str) -> None:
    with pytest.raises(ConfigError, match="there is no exercise"):
        find(bad)


def test_given_records_come_from_where_the_function_was_defined() -> None:
    names = namespace()
    found = notebook._by_name(find("run_plan"), (names["run_plan"],))
    assert found["Send"] is names["Send"]
    assert set(found) == {"run_plan", "Send", "Recv", "Reduce"}
