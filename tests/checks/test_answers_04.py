"""The four proofs of lesson 04."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson04(FourProofs):
    number = "04"
    main = frozenset({"overlapped_ddp", "bucketed_ddp"})
    sample = frozenset({("overlapped_ddp", "buffers stay")})
    exact_par = False
