"""The four proofs of lesson 05."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson05(FourProofs):
    number = "05"
    main = frozenset({"5.8"})
    sample = frozenset(
        {
            ("5.2", "the last stage only"),
            ("5.3", "f passes the gradient on"),
            ("5.8", "divided by M"),
            ("5.8", "one blocking message at a time"),
            ("5.8", "all forwards, then all backwards, whatever the schedule"),
            ("5.8", "keeps all outputs"),
            ("5.11", "adds up"),
        }
    )
    style_sample = frozenset({("right_with_separate_calls", "5.8")})
