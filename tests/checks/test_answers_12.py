"""The four proofs of lesson 12."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson12(FourProofs):
    number = "12"
    main = frozenset({"parallel_block"})
    sample = frozenset({("parallel_block", "the layer as it is"), ("sequence_parallel", "one seed for all")})
