"""The four proofs of lesson 06."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson06(FourProofs):
    number = "06"
    main = frozenset({"6.6"})
    sample = frozenset(
        {
            ("6.5", "all_reduce of the parts"),
            ("6.6", "does not divide"),
            ("6.6", "the bucket's number alone"),
            ("6.6", "waits for all works"),
            ("6.6", "waits for its own future"),
            ("6.6", "always adds"),
            ("6.7", "one average after the other"),
            ("6.7", "orthonormal before the mean"),
            ("6.11", "an endless queue"),
        }
    )
    slow = frozenset({"6.11"})
    style_sample = frozenset({("right_in_other_words", "6.6")})
