"""The four proofs of lesson 02."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson02(FourProofs):
    number = "02"
    main = frozenset({"ring_plan", "run_plan", "ring_sum"})
    sample = frozenset({("run_plan", "always adds"), ("ring_sum", "blocking sends on all ranks at once")})
    stub_sample = frozenset({"ring_sum"})
