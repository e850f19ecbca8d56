"""The four proofs of lesson 04."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson03(FourProofs):
    number = "04"
    main = frozenset({"overlapped_ddp", "bucketed_ddp", "mini_ddp"})
    sample = frozenset(
        {
            ("broadcast_module", "parameters only"),
            ("average_gradients", "divided by two"),
            ("overlapped_ddp", "buffers stay"),
            ("bucketed_ddp", "wraps torch's DDP"),
        }
    )
    stub_sample = frozenset({"broadcast_module", "bucketed_ddp", "sharded_sampler"})
    exact_par = False
