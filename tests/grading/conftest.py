from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from grading.small_lesson import RIGHT, write_course
from labkit.grading import student
from labkit.grading.course import Course, find_course
from labkit.grading.hidden_cases.oracle import Oracle
from labkit.grading.hidden_cases.probe import CaseRun, Outcome
from labkit.grading.limits import Limits
from labkit.grading.preloaded.template import Template
from labkit.grading.sandbox import bubblewrap
from labkit.grading.setting import Setting
from labkit.grading.student import Grader

SANDBOX = "none" if bubblewrap.problem() else "bubblewrap"

GIVEN = {
    "id": "given-1",
    "name": "cell given-1",
    "kind": "given",
    "source": "import torch\nimport torch.distributed as dist\n",
}


@pytest.fixture(scope="session")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    return find_course("90", write_course(tmp_path_factory.mktemp("small") / "course"))


@pytest.fixture(scope="session")
def oracle(course: Course) -> Iterator[Oracle]:
    oracle = Oracle(course)
    yield oracle
    oracle.close()


@pytest.fixture(scope="session")
def template(oracle: Oracle, course: Course) -> Iterator[Template]:
    template = Template(course.secrets if SANDBOX == "bubblewrap" else None)
    template.ready(oracle.rank_side)
    yield template
    template.close()


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Setting], Grader]]:
    """Make a Grader in this process; closed when the test is over.

    A grader ends every process below its own but those it keeps: here others live beside it, which earlier tests
    started and later ones need (a resource tracker of multiprocessing, the process that ranks are forked from).
    """
    others = [child.pid for child in psutil.Process().children()]
    end = student.end_descendants
    monkeypatch.setattr(student, "end_descendants", lambda of=None, keep=(): end(of, [*keep, *others]))
    made: list[Grader] = []

    def make(setting: Setting) -> Grader:
        made.append(Grader(setting))
        return made[-1]

    yield make
    for each in made:
        each.close()


Probe = Callable[..., Outcome]


@pytest.fixture
def probe(template: Template, oracle: Oracle, tmp_path: Path) -> Probe:
    """Run one hidden case of the small lesson with these answers; the right ones elsewhere."""

    def run(
        exercise_id: str,
        answers: Mapping[str, str] | None = None,
        case: int = 0,
        seconds: float = 60.0,
        limits: Limits | None = None,
    ) -> Outcome:
        sources = {**RIGHT, **(answers or {})}
        cells = [GIVEN]
        for number, source in sources.items():
            cells.append({"id": f"exercise-{number}", "name": number, "kind": "exercise", "source": source})
        hidden = oracle.cases(exercise_id, 7)[case]
        return CaseRun(template, exercise_id, cells, hidden, 1, tmp_path, seconds, limits or Limits()).run()

    return run
