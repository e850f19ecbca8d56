"""Write the submissions to lesson 03 that grading is tested with: ``python tests/submissions/make_03.py``.

Each file in answers_03/ is a submission, in the form that make_02 describes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from make_02 import answers, notebook, scores

from labkit.lessons.source import load

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ANSWERS = HERE / "answers_03"
SUBMISSIONS = HERE / "03"

# What each submission must get: the exercises whose points it loses.
LOST: dict[str, tuple[str, ...] | None] = {
    "right_as_taught": (),
    "right_views_of_the_bucket": (),
    "right_in_few_lines": (),
    "untouched": ("3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "3.10"),
    "sum_for_mean": ("3.2", "3.3", "3.5", "3.6", "3.7", "3.10"),
    "all_after_backward": ("3.3", "3.5", "3.6", "3.7", "3.10"),
    "forgets_to_wait": ("3.3", "3.5", "3.6", "3.7", "3.10"),
    "wraps_torch": ("3.5", "3.6", "3.7", "3.10"),
    "order_of_registration": ("3.4", "3.5", "3.6", "3.7"),
    "parameters_only": ("3.1", "3.3", "3.5", "3.6", "3.7"),
}


def main() -> None:
    """Write every submission and scores.json."""
    SUBMISSIONS.mkdir(exist_ok=True)
    files = everything()
    for path in SUBMISSIONS.iterdir():
        if path.name not in files:
            path.unlink()
    for name, data in files.items():
        (SUBMISSIONS / name).write_bytes(data)
    sys.stdout.write(f"{len(files)} files in {SUBMISSIONS.name}/\n")


def everything() -> dict[str, bytes]:
    """Return the content of every file by name."""
    lesson = load(ROOT / "solutions" / "03_ddp.py")
    student = json.loads((ROOT / "notebooks" / "03_ddp.ipynb").read_text(encoding="utf-8"))
    files = {}
    for path in sorted(ANSWERS.glob("*.py")):
        files[f"{path.stem}.ipynb"] = notebook(student, answers(path.read_text(encoding="utf-8"), lesson))
    files["scores.json"] = (json.dumps(scores(lesson, LOST), indent=1) + "\n").encode()
    return files


if __name__ == "__main__":
    main()
