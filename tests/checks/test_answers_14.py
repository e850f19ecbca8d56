"""The four proofs of lesson 14."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson14(FourProofs):
    number = "14"
    main = frozenset({"combine_gradients"})
    sample = frozenset({("combine_gradients", "sums copies"), ("clip_whole", "counts both ends")})
