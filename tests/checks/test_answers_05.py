"""The four proofs of lesson 05."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson05(FourProofs):
    number = "05"
    main = frozenset({"mini_ddp"})
    sample = frozenset(
        {("accumulating_ddp", "no finally"), ("mini_ddp", "zeros for all"), ("uneven_inputs", "the mean over all")}
    )
    stub_sample = frozenset({"mini_ddp"})
