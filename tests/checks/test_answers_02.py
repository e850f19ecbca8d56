"""The four proofs of lesson 02."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson02(FourProofs):
    number = "02"
    main = frozenset({"ring_plan", "run_plan", "ring_sum"})
    sample = frozenset(
        {
            ("naive_all_reduce", "rank 0 sends before it receives"),
            ("run_plan", "always adds"),
            ("ring_sum", "whole tensor round the ring"),
            ("ring_sum", "last all-gather step forgotten"),
            ("ring_sum", "blocking sends on all ranks at once"),
        }
    )
    style_sample = frozenset({("right_one_loop_per_collective", "ring_sum")})
