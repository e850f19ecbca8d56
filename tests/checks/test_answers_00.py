"""The four proofs of lesson 00."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson00(FourProofs):
    number = "00"
    main = frozenset({"average"})
    sample = frozenset({("average", "the quotient gets a new name")})
    style_sample = frozenset({("right_with_loops", "average")})
