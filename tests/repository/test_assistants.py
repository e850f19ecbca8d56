"""What assistants are told names what is there, and goes where learners are."""

from __future__ import annotations

import re
from pathlib import Path

import labkit
from labkit.commands.lab import write_lessons
from labkit.lessons.lesson import TASKS
from labkit.lessons.pristine import TUTOR
from labkit.timeline import Timeline

ROOT = Path(__file__).parents[2]
FOR_LEARNERS = (ROOT / "notebooks" / TUTOR).read_text(encoding="utf-8")
FOR_CONTRIBUTORS = (ROOT / "AGENTS.md").read_text(encoding="utf-8")


def test_a_tutor_is_named_only_calls_that_there_are_and_every_kind_of_task() -> None:
    called = set(re.findall(r"`?labkit\.(\w+)", FOR_LEARNERS))
    assert {"check", "hint", "run", "virtual"} <= called <= {*labkit.__all__}
    assert all(hasattr(Timeline, name) for name in re.findall(r"`timeline\.(\w+)\(", FOR_LEARNERS))
    told = FOR_LEARNERS.partition("## Instead")[0]
    assert all(f"`{task}`" in told for task in TASKS)


def test_a_contributors_assistant_is_named_only_targets_and_files_that_there_are() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {word for line in re.findall(r"`make ([a-z -]+)`", FOR_CONTRIBUTORS) for word in line.split()}
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    paths = re.findall(r"`([\w/]+\.(?:md|py|toml))`", FOR_CONTRIBUTORS)
    assert len(paths) > 3 and all((ROOT / path).is_file() for path in paths)


def test_the_tutors_page_lies_where_lessons_are_written(tmp_path: Path) -> None:
    write_lessons(tmp_path, lambda _: None)
    assert (tmp_path / "notebooks" / TUTOR).read_text(encoding="utf-8") == FOR_LEARNERS
