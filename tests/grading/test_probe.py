"""Hidden cases on real rank processes: what comes back when a submission fails in each of the ways there are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grading.small_lesson import RIGHT
from labkit.checks.case import Failure
from labkit.checks.exercise import speaks_for_itself
from labkit.grading.hidden_cases.oracle import Oracle
from labkit.grading.hidden_cases.probe import NoGpuError, Outcome
from labkit.grading.limits import Limits
from labkit.grading.preloaded.template import Template
from labkit.grading.sandbox.process_tree import descendants
from labkit.grading.sandbox.view import shown_in_scratch

Probe = Callable[..., Outcome]


@pytest.mark.in_turn
def test_the_grading_process_loads_no_torch() -> None:
    code = "import labkit.grading.grade, labkit.grading.workers.worker, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


def test_the_template_has_one_thread_when_it_forks(template: Template) -> None:
    assert template.num_threads == 1


@pytest.mark.in_turn
@pytest.mark.parametrize("exercise_id", ["double", "shift", "total"])
def test_right_answers_pass_every_hidden_case(exercise_id: str, probe: Probe, oracle: Oracle) -> None:
    for case in oracle.cases(exercise_id, 7):
        outcome = probe(exercise_id, case=case.index)
        assert oracle.judge(exercise_id, case, outcome.results, outcome.failure, outcome.wire).passed


def test_the_same_seed_draws_the_same_cases_and_another_draws_others(oracle: Oracle) -> None:
    assert oracle.cases("shift", 1) == oracle.cases("shift", 1) != oracle.cases("shift", 2)


FAILURES = {
    "stub": (
        "not_implemented",
        "Exercise 90.1",
        "def double(x):\n    raise NotImplementedError('Exercise 90.1: twice')\n",
    ),
    "exception": ("exception", "It raised ZeroDivisionError: division by zero", "def double(x):\n    return x / 0\n"),
    "syntax": ("exception", "double is not defined, because its cell stopped: SyntaxError", "def double(x)\n"),
    "not defined": (
        "exception",
        "double is not defined: the cell of exercise double",
        "def dubble(x):\n    return 1\n",
    ),
    "not a function": ("exception", "double is not defined", "double = 3\n"),
    "not a value": ("bad_result", "of type object", "def double(x):\n    return object()\n"),
    "exit": ("exception", r"the code called sys.exit\(3\)", "import sys\ndef double(x):\n    sys.exit(3)\n"),
    "os._exit": ("died", "Rank 0 ended with exit status 7", "import os\ndef double(x):\n    os._exit(7)\n"),
    "kill": ("died", "Rank 0 was ended by SIGKILL", "import os\ndef double(x):\n    os.kill(os.getpid(), 9)\n"),
    "segfault": ("died", "SIGSEGV: it crashed", "import ctypes\ndef double(x):\n    ctypes.string_at(0)\n"),
    "recursion": ("exception", "RecursionError", "def double(x):\n    return double(x)\n"),
    "flood": ("died", "printed more than 1 MB", "def double(x):\n    while True:\n        print('x' * 10000)\n"),
    "memory": (
        "exception",
        "MemoryError|not enough memory|can't allocate",
        "def double(x):\n    return torch.ones(1 << 40)\n",
    ),
}


def test_what_communication_refuses_is_no_plain_python_error(probe: Probe) -> None:
    source = RIGHT["shift"].replace("torch.empty_like(x)", "torch.empty(1)")
    failure = probe("shift", {"shift": source}, case=1).failure
    assert failure is not None and "which asked for 4 bytes" in failure["message"]
    assert not speaks_for_itself(Failure(**failure)), "its hint comes from the table of mistakes"


@pytest.mark.in_turn
@pytest.mark.parametrize("name", FAILURES)
def test_each_way_to_fail_comes_back_in_words(name: str, probe: Probe) -> None:
    import re

    kind, words, source = FAILURES[name]
    failure = probe("double", {"double": source}, limits=Limits(rank_flood_bytes=1 << 20)).failure
    assert failure is not None
    assert failure["kind"] == kind
    assert re.search(words, failure["message"]), failure


@pytest.mark.in_turn
def test_an_endless_loop_that_ignores_signals_ends_at_its_time(probe: Probe, template: Template) -> None:
    source = """
import signal
def double(x):
    for number in range(1, 32):
        if number not in (9, 19):
            signal.signal(number, signal.SIG_IGN)
    while True:
        pass
"""
    failure = probe("double", {"double": source}, seconds=1.5).failure
    assert failure is not None and failure["kind"] == "timeout"
    assert descendants(template.first_pid) == []


def test_what_a_rank_leaves_running_is_ended_with_the_case(probe: Probe, template: Template) -> None:
    source = """
import os, time
def double(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open("/tmp/pid", "w").write(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    while not os.path.exists("/tmp/pid"):
        time.sleep(0.01)
    return x + x
"""
    outcome = probe("double", {"double": source})
    assert outcome.failure is None
    assert descendants(template.first_pid) == []


def test_one_rank_that_raises_is_told_before_those_that_wait_for_it(probe: Probe) -> None:
    source = "def total(x):\n    if dist.get_rank() == 1:\n        return [][2]\n    dist.all_reduce(x)\n"
    failure = probe("total", {"total": source}, case=1).failure
    assert failure is not None
    assert failure["rank"] == 1
    assert failure["message"] == "Rank 1 raised IndexError: list index out of range"
    assert failure["detail"] == "exercise total, line 3: return [][2]"


def test_a_deadlock_is_known_at_once_and_says_who_waits_for_whom(probe: Probe) -> None:
    source = "def total(x):\n    dist.recv(x, (dist.get_rank() + 1) % dist.get_world_size())\n"
    failure = probe("total", {"total": source}, case=1, seconds=120).failure
    assert failure is not None and failure["kind"] == "deadlock"  # the relay knows it; of a timeout it would not
    assert failure["detail"].splitlines()[2] == (
        "rank 2 waits in recv from rank 0 (40 B) "
        "at exercise total, line 2: dist.recv(x, (dist.get_rank() + 1) % dist.get_world_size())"
    )


def test_a_cell_that_fails_does_not_take_the_other_exercises_with_it(probe: Probe) -> None:
    assert (
        probe("total", {"double": "raise ValueError('broken')", "shift": "import os\nthis is no python"}).failure
        is None
    )


def test_what_only_a_notebook_understands_is_passed_over(probe: Probe) -> None:
    source = "%matplotlib inline\n!ls\ndef double(x):\n    return x + x\nlabkit_says = 1\n"
    assert probe("double", {"double": source}).failure is None


def test_a_rank_sees_neither_our_environment_nor_our_files(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    is_open = "def is_open(fd):\n    try: return bool(os.fstat(fd))\n    except OSError: return False\n"
    seen = "[sorted(os.environ), os.listdir('.'), sum(map(is_open, range(2000)))]"
    source = f"import os\n{is_open}def program(rank):\n    return {seen}\n"
    outcome = probe("program", {"program": source})
    from labkit.checks import wire_format

    names, files, num_open = wire_format.decode(outcome.results[0])["y"]  # type: ignore[misc]
    assert "SECRET_TOKEN" not in names and "RANK" in names
    # Nothing, but for a checkout below /tmp where there is a sandbox, whose /tmp this is.
    assert set(files) <= {path.parts[2] for path in shown_in_scratch()}
    assert num_open == 5  # in, out, err, relay, result


@pytest.mark.in_turn
def test_a_template_that_is_killed_is_noticed_where_there_is_no_sandbox(oracle: Oracle, tmp_path: Path) -> None:
    from labkit.grading.hidden_cases.probe import CaseRun

    template = Template(None)
    template.ready(oracle.rank_side)
    source = "import os\ndef double(x):\n    os.kill(os.getppid(), 9)\n    import time\n    time.sleep(60)\n"
    cells = [{"id": "e", "name": "double", "kind": "exercise", "source": source}]
    outcome = CaseRun(template, "double", cells, oracle.cases("double", 1)[0], 1, tmp_path, 20, Limits()).run()
    assert outcome.failure is not None and outcome.failure["kind"] == "died"
    assert not template.alive
    template.close()


def test_a_rank_without_its_gpu_says_so_before_it_runs_the_answer(
    template: Template, probe: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template, "gpu", "GPU-that-is-not-here")
    with pytest.raises(NoGpuError, match="rank 0 can use no GPU"):
        probe("double", {"double": "raise SystemExit('the answer ran')"})
