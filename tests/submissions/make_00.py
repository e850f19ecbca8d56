"""Write the submissions to lesson 00 that grading is tested with: ``python tests/submissions/make_00.py``.

Each file in answers_00/ is a submission, in the form that make_02.py describes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from make_02 import answers, notebook, scores

from labkit.lessons.source import load

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ANSWERS = HERE / "answers_00"
SUBMISSIONS = HERE / "00"

# What each submission must get: the exercises whose points it loses.
LOST: dict[str, tuple[str, ...] | None] = {
    "right_as_taught": (),
    "right_in_another_style": (),
    "as_the_post_does": ("0.1", "0.2", "0.3", "0.4"),
    "world_of_four": ("0.1", "0.2"),
    "never_comes": ("0.1",),
    "untouched": ("0.1", "0.2", "0.3", "0.4"),
}


def main() -> None:
    """Write every submission and scores.json."""
    SUBMISSIONS.mkdir(exist_ok=True)
    files = everything()
    for name, data in files.items():
        (SUBMISSIONS / name).write_bytes(data)
    sys.stdout.write(f"{len(files)} files in {SUBMISSIONS.name}/\n")


def everything() -> dict[str, bytes]:
    """Return the content of every file by name."""
    lesson = load(ROOT / "solutions" / "00_start_here.py")
    student = json.loads((ROOT / "notebooks" / "00_start_here.ipynb").read_text(encoding="utf-8"))
    files = {
        f"{path.stem}.ipynb": notebook(student, answers(path.read_text(encoding="utf-8"), lesson))
        for path in sorted(ANSWERS.glob("*.py"))
    }
    files["scores.json"] = (json.dumps(scores(lesson, LOST), indent=1) + "\n").encode()
    return files


if __name__ == "__main__":
    main()
