"""The four proofs of lesson 05."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson05(FourProofs):
    number = "05"
    main = frozenset({"mini_ddp"})
    sample = frozenset({("mini_ddp", "zeros for all")})
