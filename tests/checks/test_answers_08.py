"""The four proofs of lesson 08."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson08(FourProofs):
    number = "08"
    main = frozenset({"run_schedule"})
    sample = frozenset(
        {
            ("one_batch", "the last stage only"),
            ("run_schedule", "divided by M"),
            ("run_schedule", "waits for every send"),
            ("run_schedule", "all forwards, then all backwards, whatever the schedule"),
            ("run_schedule", "keeps all outputs"),
        }
    )
    style_sample = frozenset({("right_that_waits_at_each_receive", "run_schedule")})
