"""The incident exam: each kind shows in what a student gets; an own answer earns all, a neighbour's nothing."""

from __future__ import annotations

import json
import re
import shutil
import stat
from pathlib import Path

import pytest

from labkit.checks.hidden import Draw
from labkit.errors import ConfigError
from labkit.grading.exam.incidents import KINDS, RANKS, Incident, incident
from labkit.grading.exam.papers import ANSWER, KEYS, MARKS, PAPERS, mark_papers, write_papers

pytestmark = pytest.mark.in_turn

CLASS = ("Ada", "Bo", "Cy", "Di")


@pytest.fixture(scope="module")
def exam(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exam")
    assert write_papers(folder, CLASS, b"k" * 32) == len(CLASS)
    return folder


@pytest.fixture(scope="module")
def drawn() -> dict[str, Incident]:
    return {kind.cause: incident(Draw(f"incident {number}"), kind) for number, kind in enumerate(KINDS)}


def spent(found: Incident, rank: int, name: str) -> int:
    return sum(span.end_ns - span.start_ns for span in found.timeline.spans(rank=rank).rows() if span.name == name)


def seen(found: Incident) -> set[tuple[int, str]]:
    """Return which rank and which cause logs, last words and timeline point at, by rules of one line each."""
    logs = [log.splitlines() for log in found.logs]
    marks: set[tuple[int, str]] = set()
    for what, cause in (("load batch", KINDS[0].cause), ("forward and backward", KINDS[1].cause)):
        times = [spent(found, rank, what) for rank in range(RANKS)]
        longest = max(range(RANKS), key=times.__getitem__)
        if times[longest] > 1.5 * sorted(times)[-2]:
            marks.add((longest, cause))
    if "killed" in found.said:
        marks.add((int(found.said.split()[1]), KINDS[2].cause))
    if "Deadlock" in found.said:
        last = [log[-1].split(":")[0] for log in logs]
        marks |= {(rank, KINDS[3].cause) for rank in range(RANKS) if last.count(last[rank]) == 1}
    step = next((at for at in range(min(map(len, logs))) if any("loss nan" in log[at] for log in logs)), None)
    if step is not None:
        marks |= {(rank, KINDS[4].cause) for rank in range(RANKS) if "loss nan" in logs[rank][step]}
    if "all_gather" in found.said:
        sizes = {int(rank): size for rank, size in _calls(found.said)}
        marks |= {(rank, KINDS[5].cause) for rank, size in sizes.items() if size == min(sizes.values())}
    weights = [log[0].split("weights ")[1] for log in logs if log]
    marks |= {(rank, KINDS[6].cause) for rank, each in enumerate(weights) if weights.count(each) == 1}
    return marks


def _calls(said: str) -> list[tuple[str, int]]:
    return [(rank, int(size)) for rank, size in re.findall(r"ank (\d+) called all_gather (\d+) x", said)]


@pytest.mark.parametrize("cause", [kind.cause for kind in KINDS])
def test_a_papers_log_and_timeline_show_the_rank_and_the_cause_and_no_other(
    cause: str, drawn: dict[str, Incident]
) -> None:
    found = drawn[cause]
    assert found.right["cause"] == cause
    assert seen(found) == {(found.right["rank"], cause)}


def test_an_own_answer_earns_all_and_a_neighbours_nothing(exam: Path, tmp_path: Path) -> None:
    keys = json.loads((exam / KEYS).read_text())
    rights = {name: each["right"] for name, each in keys.items()}
    neighbour = {
        name: next(right for right in rights.values() if not set(right.items()) & set(rights[name].items()))
        for name in CLASS
    }
    for given, points in ((rights, 100), (neighbour, 0)):
        shutil.rmtree(tmp_path / "in", ignore_errors=True)
        for name, right in given.items():
            (tmp_path / "in" / name).mkdir(parents=True)
            (tmp_path / "in" / name / ANSWER).write_text(json.dumps(right))
        assert mark_papers(exam, tmp_path / "in").points == dict.fromkeys(CLASS, points)
    assert (exam / MARKS).read_text().splitlines()[1] == "Ada,0"


def test_a_paper_holds_no_key_and_what_is_odd_is_told(exam: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE((exam / KEYS).stat().st_mode) == 0o600
    files = {path.name for path in (exam / PAPERS / "Ada").iterdir()}
    assert files == {"README.md", "answer.json", "ranks.log", "timeline.json", "train.py"}
    told = "".join((exam / PAPERS / "Ada" / name).read_text() for name in files)
    assert str(Path.home()) not in told and "incidents.py" not in told and "type: ignore" not in told
    (tmp_path / "Ada.json").write_text("[" * 5000)
    (tmp_path / "Bo.json").write_text('{"rank": true}')
    (tmp_path / "Cy.json").symlink_to(exam / KEYS)
    (tmp_path / "Eve.json").write_text("{}")
    marks = mark_papers(exam, tmp_path)
    assert set(marks.points.values()) == {0} and set(marks.problems) == {"Ada.json", "Cy.json", "Eve.json"}
    assert "is nobody's paper" in marks.problems["Eve.json"]
    with pytest.raises(ConfigError, match="nobody to write papers for"):
        write_papers(tmp_path / "other", [], b"k" * 32)
