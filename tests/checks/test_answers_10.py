"""The four proofs of lesson 10."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson10(FourProofs):
    number = "10"
    main = frozenset({"compression_hook"})
    sample = frozenset({("compression_hook", "waits for its own future")})
    slow = frozenset({"compression_plan"})
