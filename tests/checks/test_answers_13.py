"""The four proofs of lesson 13."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson13(FourProofs):
    number = "13"
    main = frozenset({"sharded_module"})
    sample = frozenset({("sharded_module", "never frees after forward")})
