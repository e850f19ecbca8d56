"""The four proofs of lesson 03."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson03(FourProofs):
    number = "03"
    main = frozenset({"drop_in_all_reduce"})
    sample = frozenset({("drop_in_all_reduce", "adds up in bfloat16")})
