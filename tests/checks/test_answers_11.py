"""The four proofs of lesson 11."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson11(FourProofs):
    number = "11"
    main = frozenset({"prefetching_loader", "recompute_plan"})
    sample = frozenset({("prefetching_loader", "an endless queue")})
    slow = frozenset({"prefetching_loader"})
    style_sample = frozenset({("right_in_other_words", "prefetching_loader")})
