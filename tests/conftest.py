"""What all tests share.

Property tests draw the same examples on every machine, and none is too slow: a loaded machine stops for seconds.
``pytest --hypothesis-profile=search`` draws others, and many of them.
Hypothesis would also draw constants that it finds in the source of every module imported so far: then examples would
depend on which tests a worker runs, and each worker would spend ten seconds on reading all our sources.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from labkit.launch import preloaded
from tests import chromium, sampling
from tests.cost import Cost
from tests.submissions.making import write

settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile("search", settings.get_profile("same"), derandomize=False, max_examples=5_000)
settings.load_profile("same")
providers.is_local_module_file = lambda path: False
IMPORTED_BY_TESTS = ("pytest", "hypothesis", "labkit.checks.notebook", "labkit.lessons.source")
"""What test files import, and with them each rank whose function stands in one: a second a rank."""
preloaded._PROGRAM = f"{preloaded._PROGRAM.removesuffix('main()')}import {', '.join(IMPORTED_BY_TESTS)}; main()"


@pytest.fixture(scope="session", autouse=True)
def a_class_key_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test makes a class key where it happens to run, or waits for the turns of others that grade here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_TURNS", str(tmp_path_factory.mktemp("turns")))
        patch.setenv("LABKIT_CLASS_KEY", str(tmp_path_factory.mktemp("key") / "gradebook.key"))
        yield


@pytest.fixture(autouse=True)
def a_process_as_it_was() -> Iterator[None]:
    """What a test leaves changed in the worker's own process is put back: the next one finds it as if it came first."""
    folder, path, torch = Path.cwd(), list(sys.path), sys.modules.get("torch")
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    of_torch = torch and (torch.get_default_dtype(), torch.get_num_threads())
    yield
    os.chdir(folder)
    sys.path[:] = path
    for each, handler in handlers.items():
        if handler is not None and signal.getsignal(each) != handler:
            signal.signal(each, handler)
    if torch and of_torch != (torch.get_default_dtype(), torch.get_num_threads()):
        torch.set_default_dtype(of_torch[0])
        torch.set_num_threads(of_torch[1])


@pytest.fixture(scope="session")
def submissions(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns the folder of a lesson's submissions: workers share it, the first to ask writes it."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "submissions"
    shared.mkdir(exist_ok=True)

    def made(number: str) -> Path:
        if not (shared / number).is_dir():
            scratch = tmp_path_factory.mktemp(f"submissions-{number}-") / number
            write(number, scratch)
            with contextlib.suppress(OSError):  # another worker was first, and wrote the same
                scratch.rename(shared / number)
        return shared / number

    return made


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, one for all tests of this process; skipped in words where there is none."""
    with chromium.running() as started:
        yield started


# Files that take longest, in that order: no worker begins one of them while the others have nothing left.
LONGEST_FIRST = (
    "tests/docs/test_site.py",
    "tests/browser/test_explorers_in_browser.py",
    "tests/grading/test_release.py",
    "tests/browser/test_conversions.py",
    "tests/grading/test_grade.py",
    "tests/grading/test_working_folder.py",
    "tests/launch/cluster/test_two_workers.py",
    "tests/launch/test_launch_notebook.py",
    "tests/board/test_server.py",
    "tests/lessons/test_lesson_build.py",
    "tests/checks/test_answers_10.py",
    "tests/grading/test_pages_of_a_class.py",
    "tests/security/test_hostile_batch.py",
    "tests/repository/test_command_line.py",
    "solutions/08_pipeline.ipynb",
    "solutions/00_start_here.ipynb",
    "tests/simulator/test_peers.py",
    "tests/grading/test_ci_templates.py",
    "tests/grading/test_instructors_guide.py",
    "tests/checks/test_malformed.py",
    "tests/grading/test_sandbox.py",
    "tests/checks/test_answers_04.py",
    "tests/checks/test_recognisers.py",
    "tests/checks/test_answers_13.py",
    "tests/browser/test_notebook_in_browser.py",
    "tests/repository/test_imports.py",
    "tests/simulator/test_scale.py",
    "tests/lessons/test_lesson_12.py",
    "tests/simulator/test_determinism.py",
    "tests/checks/test_answers_02.py",
    "tests/simulator/test_foreign_code.py",
    "tests/launch/test_launch_torchrun.py",
    "tests/grading/test_submission_scores.py",
)
ONE_JUPYTERLAB = frozenset(
    {
        "tests/browser/test_asking_in_browser.py",
        "tests/browser/test_explorers_in_browser.py",
        "tests/browser/test_lessons_in_browser.py",
        "tests/browser/test_notebook_in_browser.py",
        "tests/browser/test_timeline_widget.py",
    }
)
"""Files whose tests open notebooks: one worker runs them all, on one JupyterLab."""


NOT_LONG = "not long"
"""How a run that leaves long tests out begins to say so: then they are not even made."""


ROOT = Path(__file__).parents[1]
TURN = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", help="whose turn it is of the tests that take turns: a number, or that of the `commit`")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Cost(), "labkit-cost")
    told = getattr(config, "workerinput", None)
    config.stash[TURN] = told["turn"] if told else _turn(config.option.turn)
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        _rewrite_asserts(config)
    else:
        gc.disable()  # what pytest collects stays; pytest_collection_finish lets Python look for garbage again


def _turn(asked: str | None) -> tuple[int, list[str]] | None:
    """Return whose turn it is, and the files whose tests wait for none; None where all tests run."""
    if asked is None:
        return None
    if asked != "commit" and not asked.isdecimal():
        raise pytest.UsageError(f"--turn={asked}: give a number, or `commit` for that of the commit")
    turn = sampling.turn_of_commit(ROOT) if asked == "commit" else int(asked) % sampling.TURNS
    return turn, sampling.touched(ROOT)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker whose turn it is: all must find the same."""
    node.workerinput["turn"] = node.config.stash[TURN]


def _rewrite_asserts(config: pytest.Config) -> None:
    """Rewrite the test files' asserts before workers start: each of them would rewrite all that are new, for 20 s."""
    state = config.stash[rewrite.assertstate_key]
    for path in Path(__file__).parent.rglob("*.py"):
        if path.name.startswith("test_") or path.name == "conftest.py":
            folder = rewrite.get_cache_dir(path)
            cached = folder / f"{path.stem}{rewrite.PYC_TAIL}"
            if rewrite._read_pyc(path, cached) is None and rewrite.try_makedirs(folder):
                source_hash, code = rewrite._rewrite_test(path, config)
                rewrite._write_pyc(state, code, source_hash, cached)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Leave out the parameters that the run deselects anyway; where that is all of them, they are deselected later."""
    result = yield
    if metafunc.config.option.markexpr.startswith(NOT_LONG):
        left = [each for each in metafunc._calls if all(mark.name != "long" for mark in each.marks)]
        metafunc._calls = left or metafunc._calls[:1]
    return result


def pytest_collection_finish() -> None:
    gc.enable()


def pytest_report_header(config: pytest.Config) -> list[str]:
    if config.stash[TURN] is None:
        return []
    turn, _ = config.stash[TURN]
    return [f"turn: {turn} of 0 to {sampling.TURNS - 1}; `make test TURN={turn}` runs the same"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.stash[TURN] is not None:
        wait = set(sampling.waiting(items, *config.stash[TURN]))
        config.hook.pytest_deselected(items=list(wait))
        items[:] = [each for each in items if each not in wait]
    places = {file: place for place, file in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneJupyterLab(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return "JupyterLab" if file in ONE_JUPYTERLAB else file

    return OneJupyterLab(config, log)
