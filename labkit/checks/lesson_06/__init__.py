"""Checks of lesson 06, gradient compression: what the twelve exercises must do, and how learners get them wrong.

A compressor is judged by what comes back, how far it may be off, and the bytes of its parts; feedback, the mean of
packets and the hook are driven with compressors that no exercise asks for.
"""

from __future__ import annotations

from labkit.checks.exercise import Exercise
from labkit.checks.lesson_06.autocast import EXERCISE as AUTOCAST
from labkit.checks.lesson_06.bits import EXERCISE as BITS
from labkit.checks.lesson_06.claims import EXERCISE as CLAIMS
from labkit.checks.lesson_06.costs import EXERCISE as COSTS
from labkit.checks.lesson_06.feedback import EXERCISE as FEEDBACK
from labkit.checks.lesson_06.gathering import EXERCISE as GATHERING
from labkit.checks.lesson_06.hook import EXERCISE as HOOK
from labkit.checks.lesson_06.one_bit import EXERCISE as ONE_BIT
from labkit.checks.lesson_06.power import EXERCISE as POWER
from labkit.checks.lesson_06.prefetching import EXERCISE as PREFETCHING
from labkit.checks.lesson_06.scaling import EXERCISE as SCALING
from labkit.checks.lesson_06.sparse import EXERCISE as SPARSE

EXERCISES: tuple[Exercise, ...] = (
    BITS,
    ONE_BIT,
    SPARSE,
    FEEDBACK,
    GATHERING,
    HOOK,
    POWER,
    COSTS,
    AUTOCAST,
    SCALING,
    PREFETCHING,
    CLAIMS,
)
