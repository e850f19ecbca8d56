"""The four proofs of lesson 06."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson06(FourProofs):
    number = "06"
    main = frozenset({"bounded_server"})
    sample = frozenset(
        {
            ("posted_training", "one message of each worker"),
            ("sync_server", "keeps the old future"),
            ("async_server", "no lock"),
            ("bounded_server", "leave lets nobody go"),
            ("bounded_server", "the answer of the push"),
            ("bounded_server", "strictly less"),
            ("backup_workers", "late ones wait"),
        }
    )
    slow = frozenset({"sync_server", "async_server", "bounded_server", "backup_workers"})
    style_sample = frozenset({("right_in_other_words", "bounded_server"), ("right_with_conditions", "bounded_server")})
