"""Questions about a recorded run: what is asked, what is right, what a wrong answer is told, what a class changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import labkit
from labkit.checks import answering
from labkit.checks.question import KEY, QUESTION, RECORDING, read_key, read_question
from labkit.errors import ConfigError
from labkit.timeline import Timeline

ROOT = Path(__file__).parents[2]
QUESTIONS = sorted((ROOT / "labkit" / "exercises").glob(f"*/*/{QUESTION}"))
RIGHT: dict[str, Any] = {"rank": 5, "waits_in": "all_reduce", "cause": "loads its data late"}


@pytest.mark.in_turn
@pytest.mark.parametrize("path", QUESTIONS, ids=lambda path: path.parent.name)
def test_every_question_has_a_key_that_answers_it(path: Path) -> None:
    question, keys = read_question(path), [path.with_name(KEY)]
    keys += (ROOT / "solutions" / "hidden" / path.parts[-3] / path.parts[-2]).glob(KEY)
    for key in map(read_key, keys):
        assert set(key.answers) == set(question.fields)
        for name, field in question.fields.items():
            wrong = [each for each in field.choices if not key.is_right(name, each)]
            assert key.is_right(name, key.answers[name]) and len(wrong) == max(0, len(field.choices) - 1)
        for when, _ in key.hints:
            assert set(when) <= set(question.fields), "a hint for what is not asked"
            wrong_part = any(not key.is_right(name, value) for name, value in when.items())
            assert wrong_part or set(when) != set(question.fields), "a hint for a right answer"
            for name, value in when.items():
                assert value in question.fields[name].choices or not question.fields[name].choices


def test_a_right_answer_is_told_why() -> None:
    found = labkit.answer("who_waits", **RIGHT)
    assert found.passed and repr(found).startswith("Right. Rank 5 gets each batch")


def test_a_wrong_answer_is_told_which_part_and_a_hint() -> None:
    found = labkit.answer("who_waits", **{**RIGHT, "rank": 0})
    assert found.passed is False
    assert repr(found).splitlines()[0] == (
        "Not yet. rank=0: no; waits_in='all_reduce': right; cause='loads its data late': right."
    )
    assert "Whoever keeps the others waiting does not wait itself" in repr(found)


def test_no_answer_yet_is_told_what_may_be_answered() -> None:
    text = repr(labkit.answer("who_waits", rank=None, waits_in=None, cause=None))
    assert (
        text.startswith("Eight GPUs train only three times as fast")
        and 'cause: what makes that rank late; "comp' in text
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"rank": 5}, "It asks for rank=..., waits_in=..., cause=...; you gave rank."),
        ({**RIGHT, "cause": "slow"}, 'cause is "computes for longer" or'),
        ({**RIGHT, "rank": "five"}, "rank is a number; you gave 'five'."),
        ({**RIGHT, "rank": True}, "rank is a number; you gave True."),
    ],
)
def test_what_cannot_be_judged_is_told_why(given: dict[str, object], says: str) -> None:
    found = labkit.answer("who_waits", **given)  # type: ignore[arg-type]
    assert found.passed is None and says in repr(found)


def test_a_misspelt_question_is_told_its_name() -> None:
    assert "did you mean 'who_waits'?" in repr(labkit.answer("who_wait", rank=1))
    with pytest.raises(ConfigError, match="did you mean 'who_waits'"):
        labkit.recorded("who_wait")


def test_a_why_is_told_a_hint_first_and_then_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / QUESTION).write_text(
        json.dumps({"kind": "why", "asks": "N doubles?", "fields": {"": {"asks": "factor"}}})
    )
    key = {
        "answers": {"": 2.0},
        "reason": "Twice the steps.",
        "within": {"": 0.1},
        "hints": [{"when": {"": 4}, "says": "Squared?"}],
    }
    (tmp_path / KEY).write_text(json.dumps(key))
    monkeypatch.setattr(answering, "_folder", lambda exercise_id: tmp_path)
    monkeypatch.setattr(answering, "_missed", set())
    assert repr(labkit.answer("if_doubled", None)) == "N doubles?\n  Put a number in place of None."
    assert repr(labkit.answer("if_doubled", 2.1)) == "Right. Twice the steps."
    assert repr(labkit.answer("if_doubled", 4)) == f"No. Squared? {answering.TRY_AGAIN}"
    assert repr(labkit.answer("if_doubled", 5)) == "No, it is 2.0. Twice the steps."
    assert repr(labkit.answer("if_tripled", 5)) == f"No. {answering.TRY_AGAIN}"
    (tmp_path / KEY).unlink()
    assert "counts when you hand in" in repr(labkit.answer("if_doubled", 4))


def test_recordings_show_what_their_keys_say() -> None:
    folders = [path.parent for path in QUESTIONS if path.parent.name == "who_waits"]
    folders += [ROOT / "solutions" / "hidden" / "start_here" / "who_waits"]
    for folder in folders:
        run, key = Timeline.load(folder / RECORDING), read_key(folder / KEY)
        reducing = [row for row in range(len(run.rank)) if run.name[row] == "all_reduce"]
        waited = dict.fromkeys(range(run.num_ranks), 0)
        for row in reducing:
            waited[int(run.rank[row])] += int(run.end_ns[row] - run.start_ns[row])
        assert min(waited, key=lambda rank: waited[rank]) == key.answers["rank"]


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_recording_is_read_back_as_it_was(suffix: str, tmp_path: Path) -> None:
    before = labkit.recorded("who_waits")
    before.save(tmp_path / f"run{suffix}")
    after = Timeline.load(tmp_path / f"run{suffix}")
    assert (after.num_ranks, after.problems) == (before.num_ranks, before.problems)
    assert after.end_ns.tolist() == before.end_ns.tolist() and after.name.dtype == before.name.dtype
    assert {name: sorted(table) for name, table in after.tables.items()} == {
        name: sorted(table) for name, table in before.tables.items()
    }


@pytest.mark.parametrize("text", ["", "{}", '{"format": "labkit timeline 1"}', '{"columns": 3, "tables": []}'])
def test_other_json_is_no_recording(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ConfigError):
        Timeline.load(tmp_path / "run.json")
