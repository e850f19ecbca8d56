"""The four proofs of lesson 02."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson02(FourProofs):
    number = "02"
    main = frozenset({"2.6", "2.7"})
    sample = frozenset(
        {
            ("2.1", "rank 0 sends before it receives"),
            ("2.5", "always adds"),
            ("2.6", "whole tensor round the ring"),
            ("2.6", "last all-gather step forgotten"),
            ("2.6", "blocking sends on all ranks at once"),
            ("2.7", "adds up in bfloat16"),
            ("2.9", "a chain"),
            ("2.10", "the whole tensor to each partner"),
            ("2.11", "own piece forgotten"),
            ("2.12", "leaders only"),
        }
    )
    style_sample = frozenset(
        ("right_one_loop_per_collective", each) for each in ("2.1", "2.5", "2.6", "2.7", "2.9", "2.11", "2.12")
    )
