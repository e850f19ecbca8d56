"""Papers of the incident exam: a folder for each student to work on, and the points of what they hand in."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError
from labkit.grading.class_key import write_for_owner
from labkit.grading.exam.incidents import KINDS, RANKS, Incident, incident
from labkit.grading.plain_text import plain_text
from labkit.grading.variants import draw_for, file_names
from labkit.links import refuse_links
from labkit.progress import Told, untold

PAPERS, KEYS, ANSWER, MARKS = "papers", "keys.json", "answer.json", "marks.csv"
POINTS = {"rank": 40, "cause": 40, "fix": 20}
_MOST_BYTES = 10_000
_IGNORED = "  # type: ignore[no-untyped-def]"


@dataclass(frozen=True)
class Marks:
    """What an exam earned.

    Attributes:
        points: Of each student.
        problems: Of each answer that could not be read, and of each file that is nobody's: why.
    """

    points: Mapping[str, int]
    problems: Mapping[str, str]

    def __str__(self) -> str:
        """Return what the terminal shows."""
        lines = [f"{name}: {points} of {sum(POINTS.values())}" for name, points in self.points.items()]
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.problems.items())])


def write_papers(folder: Path, students: Iterable[str], key: bytes, told: Told = untold) -> int:
    """Write a folder for each student and the keys to all of them; return how many.

    Args:
        folder: Where the papers and the keys go.
        students: Names as the gradebook has them.
        key: The class key, from which each student's run is drawn.
        told: Told before each paper.

    Raises:
        ConfigError: If there are no students.
    """
    people = sorted(set(students))
    if not people:
        raise ConfigError("there is nobody to write papers for; labkit roster import tells who is in the class")
    refuse_links(folder, "the folder for papers")
    names, keys = file_names(people), dict[str, Any]()
    for number, student in enumerate(people):
        told(student, number, len(people))
        drawn = incident(draw_for(key, student, "incident"))
        keys[names[student]] = {"student": student, "right": drawn.right}
        _write_paper(folder / PAPERS / names[student], drawn)
    write_for_owner(folder / KEYS, json.dumps(keys, indent=1))
    return len(people)


def _write_paper(paper: Path, drawn: Incident) -> None:
    paper.mkdir(parents=True, exist_ok=True)
    drawn.timeline.save(paper / "timeline.json")
    logs = [f"rank {rank}: {line}" for rank, log in enumerate(drawn.logs) for line in log.splitlines()]
    (paper / "ranks.log").write_text(
        "\n".join([*logs, drawn.said or "all ranks came to the end", ""]), encoding="utf-8"
    )
    code = (Path(__file__).parent / "program.py").read_text(encoding="utf-8")
    code = code.replace("The program of the exam, as students get it: e", "E").replace(_IGNORED, "")
    (paper / "train.py").write_text(code, encoding="utf-8")
    (paper / ANSWER).write_text('{"rank": null, "cause": null, "fix": null}\n', encoding="utf-8")
    (paper / "README.md").write_text(_TEXT, encoding="utf-8")


def mark_papers(folder: Path, handed_in: Path) -> Marks:
    """Return the points of what was handed in, and write them to marks.csv.

    Args:
        folder: What `write_papers` wrote.
        handed_in: A folder with NAME/answer.json or NAME.json for each student, named as the papers are.

    Raises:
        ConfigError: If there are no keys or nothing was handed in.
    """
    try:
        keys = json.loads((folder / KEYS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / KEYS} cannot be read ({error}); labkit exam {folder} writes it") from None
    refuse_links(folder / MARKS, "the marks")
    if not handed_in.is_dir():
        raise ConfigError(f"{handed_in} is no folder; name the one with NAME/{ANSWER} or NAME.json for each student")
    points, problems = {each["student"]: 0 for each in keys.values()}, dict[str, str]()
    for path in sorted(handed_in.iterdir()):
        name, answer = (path.name, path / ANSWER) if path.is_dir() else (path.stem, path)
        if name not in keys:
            problems[plain_text(path.name)] = "is nobody's paper; name it as the paper's folder is named"
            continue
        given = _read(answer)
        if isinstance(given, str):
            problems[plain_text(path.name)] = given
            continue
        right = keys[name]["right"]
        points[keys[name]["student"]] = sum(
            worth for asked, worth in POINTS.items() if _same(given.get(asked), right[asked])
        )
    with open(folder / MARKS, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("Student", "Points"), *points.items()])
    return Marks(points, problems)


def _read(path: Path) -> dict[str, Any] | str:
    """Return what an answer says, or why it cannot be read."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return f"has no {ANSWER} of at most {_MOST_BYTES // 1000} kB"
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return f"its {path.name} is no JSON"
    return found if isinstance(found, dict) else f"its {path.name} has no rank, cause and fix"


def _same(given: object, right: object) -> bool:
    return type(given) is type(right) and given == right


def _listed(choices: Iterable[str]) -> str:
    return "\n".join(f"- `{each}`" for each in choices)


_TEXT = f"""# An incident

`train.py` ran on {RANKS} ranks and failed, or went wrong or slowly. What it printed is in `ranks.log`; what was
recorded is in `timeline.json`:

```python
labkit.Timeline.load("timeline.json")
```

Write into `{ANSWER}` which rank is to blame (a number), the cause and the fix (copy the words), and hand that file
in. You have 30 minutes. The rank earns {POINTS["rank"]} points, the cause {POINTS["cause"]}, the fix {POINTS["fix"]}.
The run was drawn for you alone.

## cause

{_listed(sorted(each.cause for each in KINDS))}

## fix

{_listed(sorted(each.fix for each in KINDS))}
"""
