"""The four proofs of lesson 09."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson09(FourProofs):
    number = "09"
    main = frozenset({"shortest_step"})
    sample = frozenset({("data_and_pipeline", "adds up")})
