"""Schedules written out in short, for the checks to hand out, and how the short form is read.

``r0 F0 s0 rg0 B0 sg0`` stands for Recv, Forward, Send, RecvGrad, Backward and SendGrad of microbatch 0. Activations
come from the stage before and go to the one behind, gradients the other way.
"""

from __future__ import annotations

from collections.abc import Sequence

from labkit.exercises.stages.pipeline_cases import Schedule, Write
from labkit.plans.pipeline_records import LETTERS, as_data, read_short

RECORDS = ("Recv", "Forward", "Send", "RecvGrad", "Backward", "SendGrad")
"""Names of the records that the lessons define for schedules."""


def read(text: str, stage: int) -> Schedule:
    """Return the schedule of a stage that the text stands for, as data."""
    return [as_data(record) for record in read_short(text, stage)]


def short(record: object) -> str:
    """Return a record, as data, in short; whatever is none as it is."""
    if isinstance(record, dict) and record.get("kind") in LETTERS:
        return f"{LETTERS[record['kind']]}{record.get('microbatch')}"
    return f"{record!r:.60}"


def written(texts: Sequence[str]) -> Write:
    """Return what hands out these schedules, one a stage."""

    def write(stage: int, num_stages: int, num_microbatches: int) -> Schedule:
        assert len(texts) == num_stages
        return read(texts[stage], stage)

    return write


GPIPE_3_3 = (
    "F0 s0 F1 s1 F2 s2 rg0 B0 rg1 B1 rg2 B2",
    "r0 F0 s0 r1 F1 s1 r2 F2 s2 rg0 B0 sg0 rg1 B1 sg1 rg2 B2 sg2",
    "r0 F0 r1 F1 r2 F2 B0 sg0 B1 sg1 B2 sg2",
)
GPIPE_3_4 = (
    "F0 s0 F1 s1 F2 s2 F3 s3 rg0 B0 rg1 B1 rg2 B2 rg3 B3",
    "r0 F0 s0 r1 F1 s1 r2 F2 s2 r3 F3 s3 rg0 B0 sg0 rg1 B1 sg1 rg2 B2 sg2 rg3 B3 sg3",
    "r0 F0 r1 F1 r2 F2 r3 F3 B0 sg0 B1 sg1 B2 sg2 B3 sg3",
)
ALTERNATING_3_4 = (
    "F0 s0 F1 s1 F2 s2 rg0 B0 F3 s3 rg1 B1 rg2 B2 rg3 B3",
    "r0 F0 s0 r1 F1 s1 rg0 B0 sg0 r2 F2 s2 rg1 B1 sg1 r3 F3 s3 rg2 B2 sg2 rg3 B3 sg3",
    "r0 F0 B0 sg0 r1 F1 B1 sg1 r2 F2 B2 sg2 r3 F3 B3 sg3",
)
ALTERNATING_4_5 = (
    "F0 s0 F1 s1 F2 s2 F3 s3 rg0 B0 F4 s4 rg1 B1 rg2 B2 rg3 B3 rg4 B4",
    "r0 F0 s0 r1 F1 s1 r2 F2 s2 rg0 B0 sg0 r3 F3 s3 rg1 B1 sg1 r4 F4 s4 rg2 B2 sg2 rg3 B3 sg3 rg4 B4 sg4",
    "r0 F0 s0 r1 F1 s1 rg0 B0 sg0 r2 F2 s2 rg1 B1 sg1 r3 F3 s3 rg2 B2 sg2 r4 F4 s4 rg3 B3 sg3 rg4 B4 sg4",
    "r0 F0 B0 sg0 r1 F1 B1 sg1 r2 F2 B2 sg2 r3 F3 B3 sg3 r4 F4 B4 sg4",
)
ALTERNATING_3_2 = (
    "F0 s0 F1 s1 rg0 B0 rg1 B1",
    "r0 F0 s0 r1 F1 s1 rg0 B0 sg0 rg1 B1 sg1",
    "r0 F0 B0 sg0 r1 F1 B1 sg1",
)
DRAWN_3_4 = (
    "F2 s2 F0 s0 F3 s3 F1 s1 rg2 B2 rg0 B0 rg1 B1 rg3 B3",
    "r2 F2 s2 r0 F0 s0 r3 F3 s3 r1 F1 s1 rg2 B2 sg2 rg0 B0 sg0 rg1 B1 sg1 rg3 B3 sg3",
    "r2 F2 r0 F0 r3 F3 r1 F1 B2 sg2 B0 sg0 B1 sg1 B3 sg3",
)
ONE_3 = ("F0 F1 F2 B0 B1 B2",)
EARLY_2_4 = (
    "F0 s0 F1 s1 F2 s2 F3 s3 rg1 B1 rg0 B0 rg2 B2 rg3 B3",
    "r0 r1 F1 B1 sg1 F0 B0 sg0 r2 r3 F2 B2 sg2 F3 B3 sg3",
)
