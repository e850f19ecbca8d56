"""The four proofs of lesson 08."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson08(FourProofs):
    number = "08"
    main = frozenset({"run_schedule"})
    sample = frozenset({("run_schedule", "keeps all outputs")})
