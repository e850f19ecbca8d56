"""The four proofs of lesson 08."""

from __future__ import annotations

from tests.checks.four_proofs import FourProofs


class TestLesson05(FourProofs):
    number = "08"
    main = frozenset({"run_schedule"})
    sample = frozenset(
        {
            ("one_batch", "the last stage only"),
            ("split_layer", "f passes the gradient on"),
            ("run_schedule", "divided by M"),
            ("run_schedule", "one blocking message at a time"),
            ("run_schedule", "all forwards, then all backwards, whatever the schedule"),
            ("run_schedule", "keeps all outputs"),
            ("data_and_pipeline", "adds up"),
        }
    )
    style_sample = frozenset({("right_with_separate_calls", "run_schedule")})
