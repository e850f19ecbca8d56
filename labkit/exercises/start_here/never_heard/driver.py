"""What a rank runs of never_heard."""

from __future__ import annotations

from labkit.checks.case import Values
from labkit.checks.exercise import Functions
from labkit.checks.values import listed
from labkit.exercises.start_here.on_ranks import plain
from labkit.timeline import Message


def drive(functions: Functions, inputs: Values) -> Values:
    """Call never_heard with each list of messages; return what it gave (never_heard)."""
    lists = listed(inputs, "lists")
    made = [[Message(**fields) for fields in each] for each in lists]
    return {"answers": [plain(functions["never_heard"](each)) for each in made]}
