"""The four proofs of lesson 00."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs, styles


class TestLesson00(FourProofs):
    number = "00"
    main = frozenset({"average"})
    sample = frozenset(
        ("average", name) for name in ("the quotient gets a new name", "divides by four", "rank 0 alone calls")
    )
    style_sample = frozenset((style, "average") for style in styles("00"))
