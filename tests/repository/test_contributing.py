"""What CONTRIBUTING.md says of layers and minutes is what the tests hold."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.cost import CPU_MINUTES, MINUTES, Cost, summary
from tests.linux import forks
from tests.repository.test_imports import LAYERS
from tests.sampling import TURNS

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_its_layers_are_those_that_imports_are_held_to() -> None:
    layers = (
        f"`labkit/` is layered; `tests/repository/test_imports.py` holds the order: {', '.join(LAYERS)}. Each imports "
        "only from those before it."
    )
    right = textwrap.fill(layers, 120, break_long_words=False, break_on_hyphens=False)
    assert right in TEXT, f"write:\n{right}"


def test_its_minutes_are_those_that_a_run_is_printed_beside() -> None:
    assert f"At most {MINUTES} minutes and {CPU_MINUTES} minutes of CPU on two cores." in TEXT
    assert summary(150, 1200) == "2.5 min and 20.0 min of CPU; `make test` may take 7 and 10 on two cores."


def test_it_says_how_many_turns_there_are() -> None:
    word = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")[TURNS]
    assert (
        f"of those of one folder one\nin {word} runs, and so of a function with {word} parameters or more;"
        in TEXT.replace("\n  ", "\n")
    )


def _test_of(file: str) -> Any:
    return SimpleNamespace(nodeid=f"tests/{file}.py::test_a_thing")


def test_a_file_is_charged_for_the_processes_that_its_tests_wait_for() -> None:
    cost = Cost()
    cost.pytest_runtest_protocol(_test_of("test_one"))
    subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 0.3: pass"], check=True)
    cost.pytest_runtest_protocol(_test_of("test_two"))
    assert set(cost._of_files) == {"tests/test_one.py"}
    assert cost._of_files["tests/test_one.py"] > 0.2  # the system counts in hundredths


@forks
def test_a_file_is_charged_for_what_still_runs_when_its_tests_are_done() -> None:
    cost = Cost()
    cost.pytest_runtest_protocol(_test_of("test_one"))
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.read(1) == b"\n"
        cost.pytest_sessionfinish(SimpleNamespace(config=None))  # type: ignore[arg-type]
    assert cost._of_files["tests/test_one.py"] > 0.2
