"""The four proofs of lesson 03."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson03(FourProofs):
    number = "03"
    main = frozenset({"drop_in_all_reduce"})
    sample = frozenset(
        {
            ("drop_in_all_reduce", "adds up in bfloat16"),
            ("tree_all_reduce", "a chain"),
            ("halving_doubling", "the whole tensor to each partner"),
            ("all_to_all", "own piece forgotten"),
            ("hierarchical_all_reduce", "leaders only"),
        }
    )
    style_sample = frozenset({("right_one_loop_per_collective", "drop_in_all_reduce")})
