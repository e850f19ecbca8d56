"""The four proofs of lesson 15."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson15(FourProofs):
    number = "15"
    main = frozenset({"step_time"})
    sample = frozenset({("step_time", "no head"), ("choose_plan", "data alone")})
