"""The four proofs of lesson 04."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson04(FourProofs):
    number = "04"
    main = frozenset({"overlapped_ddp", "bucketed_ddp"})
    sample = frozenset(
        {
            ("average_gradients", "divided by two"),
            ("overlapped_ddp", "buffers stay"),
            ("bucketed_ddp", "wraps torch's DDP"),
        }
    )
    stub_sample = frozenset({"average_gradients", "bucketed_ddp"})
    exact_par = False
