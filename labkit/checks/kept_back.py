"""What stays with instructors of an exercise's folder, by its name: no release, learners' wheel or sandbox has it."""

from __future__ import annotations

HIDDEN, WRONG = "hidden.py", "wrong.py"
MISTAKES = "mistakes.json"
"""What a class has named (class_mistakes.py): learners get it, and no mark depends on it."""


def is_kept_back(name: str) -> bool:
    """Return whether a file of exercises/ with this name is for instructors alone; compiled ones, too."""
    module = name.partition(".")[0]
    return module in ("hidden", "wrong") or module.startswith("hidden_")
