"""A fingerprint tells one mistake from another, and the same mistake in other words from none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from labkit.checks import class_mistakes
from labkit.checks.case import Case, Failure, Values
from labkit.checks.class_mistakes import MISTAKES, ClassMistake, read_mistakes, with_class_hint, write_mistakes
from labkit.checks.exercise import functions_for, judge
from labkit.checks.fingerprint import NOTHING, PASSED, are_alike, case_print, fingerprint_of
from labkit.checks.outcome import CaseOutcome
from labkit.checks.rooms import exercises, find, folder_of
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Message, Wire
from labkit.errors import ConfigError
from tests.checks.brought import brought
from tests.checks.lesson_cells import namespace

HALF = """
class ErrorFeedback(ErrorFeedback):
    def compress(self, gradient, key=0):
        packet = super().compress(gradient, key)
        self.residuals[key] = {kept}
        return packet
"""


def _outcomes(kept: str, exercise_id: str = "error_feedback") -> list[CaseOutcome]:
    exercise, names = find(exercise_id), namespace(number="10", extra=HALF.format(kept=kept))
    found = []
    for case in exercise.visible:
        got, wire = brought(exercise, functions_for(exercise, names), case)
        found.append(CaseOutcome(case, judge(exercise, case, got, wire), got=got, wire=wire))
    return found


def test_one_mistake_in_two_writings_leaves_one_fingerprint_and_another_leaves_another() -> None:
    half, quarter = (
        fingerprint_of(_outcomes("0.5 * self.residuals[key]")),
        fingerprint_of(_outcomes("0.25 * self.residuals[key]")),
    )
    assert are_alike(
        half, fingerprint_of(_outcomes("(self.residuals[key].float() - self.residuals[key] / 2).double()"))
    )
    assert not are_alike(half, quarter)


def test_values_order_types_and_what_travelled_tell_results_apart() -> None:
    x = torch.tensor([1.0, 2.0, 4.0])
    wire = Wire((Message(0, 1, 12, 0, 0),))
    left = case_print(({"sum": x},), wire)
    assert left.is_like(case_print(({"sum": x * (1 + 1e-7)},), wire))
    others: list[tuple[tuple[Values, ...], Wire]] = [
        (({"sum": x.flip(0)},), wire),
        (({"sum": x.double()},), wire),
        (({"sum": x.view(1, 3)},), wire),
        (({"sum": x, "more": 1},), wire),
        (({"sum": x},), Wire((Message(0, 1, 8, 0, 0),))),
        (({"sum": torch.tensor([1.0, 2.0, float("nan")])},), wire),
    ]
    assert not [each for each in others if left.is_like(case_print(*each))]


def test_a_case_that_raised_or_was_not_run_says_nothing_and_one_must_be_wrong() -> None:
    failed, case = Failure("exception", 0, "ValueError: no", error="ValueError"), Case("1 rank", 1, ({},))
    assert fingerprint_of([CaseOutcome(case, Verdict(False), got=failed), CaseOutcome(case, None)]) == (NOTHING,) * 2
    left = case_print(({"sum": 3},), Wire())
    assert are_alike((PASSED, left, left), (PASSED, left, NOTHING))
    assert not are_alike((PASSED, left), (left, left))
    assert not are_alike((PASSED, NOTHING), (PASSED, left))


def test_a_class_hint_is_given_where_the_check_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_mistakes, "folder_of", lambda exercise_id: tmp_path)
    exercise, outcomes = find("error_feedback"), _outcomes("0.5 * self.residuals[key]")
    mine = ClassMistake("keeps half", "Keep all of it.", (fingerprint_of(outcomes),))
    assert with_class_hint(exercise, outcomes) == outcomes
    write_mistakes(tmp_path, [mine])
    assert read_mistakes(tmp_path) == (mine,)
    told = [each.verdict for each in with_class_hint(exercise, outcomes) if each.verdict and each.verdict.hint]
    assert [(each.mistake, each.hint) for each in told] == [("keeps half", "Keep all of it.")]
    declared = _outcomes("-self.residuals[key]")
    write_mistakes(tmp_path, [replace(mine, fingerprints=(fingerprint_of(declared),))])
    assert with_class_hint(exercise, declared) == declared
    (tmp_path / MISTAKES).write_text("{}[")
    with pytest.raises(ConfigError, match="is not what `labkit mistake add` writes"):
        with_class_hint(exercise, outcomes)


def test_every_exercise_has_a_folder_and_labkit_hands_out_no_classs_mistakes() -> None:
    folders = [folder_of(each) for lesson in ("collectives", "gradient_compression") for each in exercises(lesson)]
    assert all((each / "exercise.py").is_file() for each in folders)
    assert not list(folders[0].parents[1].rglob(MISTAKES))


def test_a_fingerprint_is_written_as_json_and_read_as_it_was(tmp_path: Path) -> None:
    fingerprint = (PASSED, case_print(({"sum": torch.arange(5.0), "mean": 0.1},), Wire()), NOTHING)
    path = write_mistakes(tmp_path, [ClassMistake("a", "b", (fingerprint,))])
    assert json.loads(path.read_text())[0]["name"] == "a"
    assert read_mistakes(tmp_path)[0].fingerprints == (fingerprint,)
