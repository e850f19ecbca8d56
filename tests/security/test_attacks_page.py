"""docs/attacks.md names attacks and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

from security.attacks import attacks
from security.test_forged_facts import FORGED
from security.test_hostile_batch import NOWHERE
from tests.submissions.making import HERE, LESSONS, ROOT

PAGE = ROOT / "docs" / "attacks.md"


def test_every_attack_that_the_page_names_is_tried() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## What a point rests on")[2].partition("\n## ")[0]
    rows = [line.split("|")[-2] for line in text.splitlines() if line.startswith("| ") and "tried by" not in line]
    known = set(attacks(NOWHERE)) | {name for _, name in FORGED}
    known |= {path.stem for number in LESSONS for path in (HERE / f"answers_{number}").glob("*.py")}
    known |= set(re.findall(r"def (test_\w+)", (ROOT / "tests/grading/test_second_run.py").read_text(encoding="utf-8")))
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(named) > 25
    assert [name for name in named if name not in known and not (ROOT / name).is_file()] == []
    assert all("`" in row for row in rows)


def test_every_forged_fact_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for _, name in FORGED if f"`{name}`" not in text] == []
    assert Path(HERE, "answers_10", "recognises_the_stand_in.py").is_file()
