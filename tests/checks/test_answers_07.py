"""The four proofs of lesson 07."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson07(FourProofs):
    number = "07"
    main = frozenset({"replicated_server"})
    sample = frozenset({("replicated_server", "acknowledges at once")})
    exact_par = False  # calls carry functions by value, with the name of the cell they come from: some bytes, 50 ns
    slow = frozenset({"sparse_rows", "replicated_server"})
