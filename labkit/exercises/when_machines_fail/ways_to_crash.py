"""What a crash did, as a learner reads it."""

from __future__ import annotations

HOW = {
    "kill": "the program was killed",
    "nothing": "the power failed, and what was not synced is gone",
    "names": "the power failed, and names without contents are left",
    "torn": "the power failed, and files have a hole",
}
