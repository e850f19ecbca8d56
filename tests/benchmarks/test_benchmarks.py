"""The benchmarks measure what they say; how fast anything is, is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import launch, other_graders, ring
from tests.benchmarks.grading import Ours
from tests.benchmarks.measured import publish
from tests.benchmarks.table import Bar, ratio, table

ROOT = Path(__file__).parents[2]


def test_a_bar_says_whether_it_was_met() -> None:
    assert str(Bar("at most one", 0.5, 1.0)).split() == ["met", "at", "most", "one:", "0.5"]
    assert str(Bar("at least one", 0.5, 1.0, at_least=True)).startswith("  MISSED")
    assert str(Bar("no peer", ratio(1.0, None), 1.0)).strip().startswith("not measured")


def test_a_table_lines_its_columns_up() -> None:
    assert table(["", "ms"], [["ring", "10"], ["gloo", "7"]]).splitlines() == ["        ms", "  ring  10", "  gloo   7"]


def test_a_topic_measured_again_takes_the_place_of_its_section_alone(tmp_path: Path) -> None:
    machine = {"cores": 2, "python": "3.11", "torch": "2.13", "load_before": 0.2}
    page = tmp_path / "measured.md"

    def measured(share: float | None) -> dict[str, object]:
        return {"machine": machine, "quick": False, "bars": [Bar("at most one", share, 1.0).as_dict()]}

    publish("ring", measured(0.5), page)
    publish("launch", measured(None), page)
    publish("ring", measured(1.5), page)
    text = page.read_text()
    assert text.index("## launch") < text.index("## ring") and text.count("\n## ") == 2
    assert "| at most one | 1.5 | at most 1 | **missed** |" in text
    assert "| at most one | not measured | at most 1 |  |" in text


@pytest.mark.long
@pytest.mark.parametrize("name", ["labkit.run", "plain fork"])
def test_a_launcher_answers_each_call_with_its_seconds_and_leaves_no_process(name: str) -> None:
    one = launch.Launcher(name, 2)
    one.call()
    one.call()
    one.end()
    assert not one.problem
    assert len(one.seconds) == 2
    assert min(one.seconds) > 0


@pytest.mark.long
def test_a_launcher_that_hangs_is_ended_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    one = launch.Launcher("labkit.run", 2)
    monkeypatch.setattr(launch, "TIMEOUT_S", 0.0)
    one.call()
    one.end()
    assert one.problem == "no answer to call 1 in 0 s"


@pytest.mark.in_turn
def test_a_launcher_that_fails_says_its_last_words() -> None:
    one = launch.Launcher("no such launcher", 2)
    one.call()
    one.end()
    assert one.problem == "KeyError: 'no such launcher'"


@pytest.mark.long
def test_the_solutions_ring_is_what_the_benchmark_holds_against_gloo() -> None:
    assert ring.solution("ring_all_reduce").__name__ == "ring_all_reduce"


@pytest.mark.in_turn
def test_an_unknown_topic_is_answered_with_those_there_are() -> None:
    command = [sys.executable, "-m", "tests.benchmarks", "rings"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2
    assert "no topic rings; there are launch, cluster, ring, " in ended.stderr


def test_the_course_that_graders_are_compared_with_has_one_exercise_and_its_answer(tmp_path: Path) -> None:
    ours = Ours(tmp_path / "small", "import math\n")
    ours.submit("ada")
    content = json.loads((tmp_path / "small" / "in" / "ada.ipynb").read_text())
    sources = {cell["id"]: cell["source"] for cell in content["cells"]}
    assert [each["id"] for each in content["metadata"]["labkit"]["exercises"]] == ["double"]
    assert sources["exercise-double"] == other_graders.ANSWER and other_graders.VISIBLE in sources["check-double"]
