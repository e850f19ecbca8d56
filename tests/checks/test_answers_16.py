"""The four proofs of lesson 16."""

from __future__ import annotations

from typing import ClassVar

from tests.checks.four_proofs import FourProofs


class TestLesson16(FourProofs):
    number = "16"
    main = frozenset({"checkpoints", "together"})
    sample = frozenset({("checkpoints", "no fsync"), ("together", "each its newest")})
    slow: ClassVar = frozenset({"checkpoints", "together", "recovery_policy"})
    stub_sample: ClassVar = frozenset({"checkpoints"})
