"""The four proofs of lesson 16."""

from __future__ import annotations

from typing import ClassVar

from tests.checks.four_proofs import FourProofs


class TestLesson16(FourProofs):
    number = "16"
    main = frozenset({"checkpoints", "together"})
    sample = frozenset({
        ("checkpoints", "no fsync"), ("together", "each its newest"), ("computing_twice", "checks itself"),
        ("few_exchanges", "goes on from its own"),
    })  # fmt: skip
    slow: ClassVar = frozenset({"checkpoints", "together", "recovery_policy", "computing_twice", "few_exchanges"})
    stub_sample: ClassVar = frozenset({"checkpoints"})
