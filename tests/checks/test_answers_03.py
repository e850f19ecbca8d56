"""The four proofs of lesson 03."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson03(FourProofs):
    number = "03"
    main = frozenset({"3.3", "3.5", "3.7"})
    sample = frozenset(
        {
            ("3.1", "parameters only"),
            ("3.2", "divided by two"),
            ("3.3", "buffers stay"),
            ("3.5", "wraps torch's DDP"),
        }
    )
    stub_sample = frozenset({"3.1", "3.5", "3.8"})
    exact_par = False
