"""The four proofs of lesson 02."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson02(FourProofs):
    number = "02"
    main = frozenset({"ring_sum", "drop_in_all_reduce"})
    sample = frozenset(
        {
            ("naive_all_reduce", "rank 0 sends before it receives"),
            ("run_plan", "always adds"),
            ("ring_sum", "whole tensor round the ring"),
            ("ring_sum", "last all-gather step forgotten"),
            ("ring_sum", "blocking sends on all ranks at once"),
            ("drop_in_all_reduce", "adds up in bfloat16"),
            ("tree_all_reduce", "a chain"),
            ("halving_doubling", "the whole tensor to each partner"),
            ("all_to_all", "own piece forgotten"),
            ("hierarchical_all_reduce", "leaders only"),
        }
    )
    style_sample = frozenset(("right_one_loop_per_collective", each) for each in main)
