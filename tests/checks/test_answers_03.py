"""The four proofs of lesson 03."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson03(FourProofs):
    number = "03"
    main = frozenset({"any_tensor", "drop_in_all_reduce", "unequal_links"})
    sample = frozenset({("any_tensor", "adds up in bfloat16"), ("drop_in_all_reduce", "op is not handed on")})
