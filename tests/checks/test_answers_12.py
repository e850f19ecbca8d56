"""The four proofs of lesson 12."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson12(FourProofs):
    number = "12"
    main = frozenset({"parallel_block"})
    sample = frozenset(
        {
            ("two_operators", "identity both ways"),
            ("parallel_block", "the layer as it is"),
            ("parallel_block", "rows of qkv one after another"),
            ("parallel_vocabulary", "whole logits"),
            ("sequence_parallel", "one seed for all"),
        }
    )
    style_sample = frozenset({("right_in_few_lines", "parallel_block")})
