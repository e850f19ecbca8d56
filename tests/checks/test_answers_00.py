"""The four proofs of lesson 00."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs, styles


class TestLesson00(FourProofs):
    number = "00"
    main = frozenset({"0.1"})
    sample = frozenset(
        ("0.1", name) for name in ("the quotient gets a new name", "divides by four", "rank 0 alone calls")
    )
    style_sample = frozenset((style, "0.1") for style in styles("00"))
