"""The four proofs of lesson 16."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from labkit.checks.wrong_answers import replaced
from tests.checks.four_proofs import FourProofs, check
from tests.checks.lesson_cells import answers, namespace, slug_of


class TestLesson16(FourProofs):
    number = "16"
    main = frozenset({"checkpoints", "together"})
    sample = frozenset({
        ("checkpoints", "no fsync"), ("together", "each its newest"), ("computing_twice", "checks itself"),
        ("few_exchanges", "goes on from its own"),
    })  # fmt: skip
    slow: ClassVar = frozenset({"checkpoints", "together", "recovery_policy", "computing_twice", "few_exchanges"})
    stub_sample: ClassVar = frozenset({"checkpoints"})


@pytest.mark.in_turn
def test_a_save_that_forgets_its_folder_leaves_nothing_in_the_learner_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = answers(slug_of("16"))["checkpoints"]
    wrong = replaced(answer, ('folder / f"{step:012}.pt"', 'Path(f"{step:012}.pt")'))
    monkeypatch.chdir(tmp_path)
    assert not check("checkpoints", namespace(extra=wrong, number="16")).passed
    assert not list(tmp_path.iterdir())
