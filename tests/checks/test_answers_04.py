"""The four proofs of lesson 04."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson04(FourProofs):
    number = "04"
    main = frozenset({"4.4"})
    sample = frozenset(
        {
            ("4.1", "one message of each worker"),
            ("4.2", "keeps the old future"),
            ("4.3", "no lock"),
            ("4.4", "leave lets nobody go"),
            ("4.4", "the answer of the push"),
            ("4.4", "strictly less"),
            ("4.5", "late ones wait"),
            ("4.8", "waits each time"),
            ("4.10", "pushes the whole"),
            ("4.11", "acknowledges at once"),
        }
    )
    exact_par = False  # calls carry functions by value, with the name of the cell they come from: some bytes, 50 ns
    slow = frozenset({"4.2", "4.3", "4.4", "4.5", "4.8", "4.11"})
    style_sample = frozenset({("right_in_other_words", "4.4"), ("right_with_conditions", "4.4")})
