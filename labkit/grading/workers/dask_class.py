"""A class over an existing Dask cluster: submissions go out as bytes, reports come back and are written here."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import EnvironmentProblem
from labkit.grading.course import Course
from labkit.grading.file_reader import FileReader
from labkit.grading.reports.student_report import write_whole
from labkit.grading.setting import Setting, fault_words, lost_words
from labkit.grading.student import unreadable, write_reports
from labkit.grading.submission import Submission, SubmittedNotebook, opened_submission, submission_hash
from labkit.grading.workers import dask_worker
from labkit.grading.workers.local_class import TRIES

if TYPE_CHECKING:
    from rich.progress import Progress

_ANSWER_SECONDS = 15
_LOOK_SECONDS = 5  # how often to see whether there is still a worker
_LAST = "result.json"


@dataclass(eq=False)
class DaskClass:
    """Hands out submissions to a Dask cluster. A Dask worker that dies costs its submissions a second try elsewhere.

    Attributes:
        setting: What workers are told.
        todo: What is to be graded.
        num_kept: Graded before, for the bar.
        bar: Where progress is shown.
        address: The scheduler's, such as ``tcp://10.0.0.5:8786``.
        tries: How often a submission was tried and lost, by name.
        num_done: How many have their reports, with those graded before.
    """

    setting: Setting
    todo: list[Submission]
    num_kept: int
    bar: Progress | None
    address: str
    tries: dict[str, int] = field(default_factory=dict)
    num_done: int = 0

    def run(self) -> None:
        """Return when every submission has its reports.

        Raises:
            EnvironmentProblem: If there is no such cluster, it went away, or grading itself failed.
        """
        distributed = _distributed()
        with _quiet("distributed.client"), self._connect(distributed) as client:
            self._require_workers(client)
            self._grade(distributed, client)

    def _connect(self, distributed: Any) -> Any:
        try:
            _require_listener(distributed, self.address)
            return distributed.Client(self.address, timeout=_ANSWER_SECONDS, name="labkit grade")
        except (OSError, ValueError, MemoryError) as error:  # MemoryError: another service's words, read as a length
            raise EnvironmentProblem(
                f"no Dask scheduler answers at {self.address} ({type(error).__name__}: {error}). Start one with "
                "`dask scheduler`, and `dask worker ADDRESS` on each machine that should grade; write the address as tcp://HOST:8786."
            ) from None

    def _require_workers(self, client: Any, since: str = "") -> None:
        try:
            client.wait_for_workers(1, timeout=_ANSWER_SECONDS)
        except TimeoutError:
            raise EnvironmentProblem(
                f"the Dask scheduler at {self.address} has no worker{since}; start some with "
                f"`dask worker {self.address}`, then run the same command again"
            ) from None
        except OSError:
            raise self._lost() from None

    def _lost(self) -> EnvironmentProblem:
        total = len(self.todo) + self.num_kept
        return EnvironmentProblem(
            f"the Dask scheduler at {self.address} went away during grading: {self.num_done} of {total} submissions "
            "have "
            "their reports, which stay. Start it and its workers again (or leave --dask out to grade on this machine), "
            "then run the same command: it grades the rest."
        )

    def _grade(self, distributed: Any, client: Any) -> None:
        run_id, fingerprint = uuid.uuid4().hex, self.setting.fingerprint()
        about = (run_id, _opening(self.setting), _course_files(self.setting.course), fingerprint)
        with FileReader(self.setting.limits) as files:
            waiting = [each for each in reversed(self.todo) if not self._is_told_here(files, each, fingerprint)]
        total = len(self.todo) + self.num_kept
        self.num_done = total - len(waiting)
        task = self.bar.add_task("", total=total, completed=self.num_done, now="") if self.bar else None
        of: dict[Any, Submission] = {}
        try:
            while waiting or of:
                workers = client.scheduler_info(n_workers=-1)["workers"].values()
                while waiting and len(of) < 2 * max(1, sum(each["nthreads"] for each in workers)):
                    submission = waiting.pop()
                    found = opened_submission(submission.path, self.setting.limits)
                    if isinstance(found, SubmittedNotebook):  # it has changed since it was looked at
                        self._report_problem(submission, found.problem, fingerprint)
                        continue
                    with open(found, "rb") as file:
                        data = file.read()
                    try:
                        future = client.submit(dask_worker.grade_one, *about, submission.name, data, pure=False)
                    except distributed.client.ClosedClientError:
                        raise self._lost() from None
                    of[future] = submission
                future = self._next(distributed, client, of)
                again = self._take(of[future], future, distributed)
                del of[future]
                future.release()
                waiting += [again] if again else []
                self.num_done = total - len(waiting) - len(of)
                if self.bar is not None and task is not None:
                    where = f"on {len(workers)} Dask workers"
                    self.bar.update(task, completed=self.num_done, now=where)
        finally:
            if client.status == "running":
                client.cancel(list(of))
                client.run(dask_worker.forget, run_id, on_error="ignore")

    def _next(self, distributed: Any, client: Any, of: Collection[Any]) -> Any:
        """Return one that ended, of those handed out; raise where none can end any more."""
        while True:
            try:
                return distributed.wait(list(of), timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED").done.pop()
            except TimeoutError:
                self._require_workers(client, " any more")
            except distributed.CancelledError:
                raise self._lost() from None

    def _take(self, submission: Submission, future: Any, distributed: Any) -> Submission | None:
        """Write what came back; return the submission where it must be tried again."""
        try:
            answer: Mapping[str, Any] = future.result()
        except distributed.KilledWorker:
            answer = {"lost": "was ended with its Dask worker"}
            self.tries[submission.name] = TRIES
        except distributed.CancelledError:
            raise self._lost() from None
        except (OSError, ImportError) as error:
            if future.status != "error":
                raise self._lost() from None
            raise EnvironmentProblem(
                f"a Dask worker cannot grade {submission.name} ({type(error).__name__}: {error}). It needs this "
                "version of labkit and free disk space; fix that there, then run the same command again."
            ) from None
        if "reports" in answer:
            reports = dict(answer["reports"])
            folder, last = self.setting.out / submission.name, reports.pop(_LAST)
            for name, content in reports.items():
                write_whole(folder / Path(name).name, content)
            write_whole(folder / _LAST, last)  # where it is, the others are
            return None
        if "crashed" in answer:
            print(
                f"grading {submission.name} failed because of a fault in the grader:\n{answer['traceback']}",
                file=sys.stderr,
            )
            self._report_problem(submission, fault_words(answer["crashed"]))
            return None
        count = self.tries[submission.name] = self.tries.get(submission.name, 0) + 1
        if count < TRIES:
            return submission
        self._report_problem(submission, lost_words(answer["lost"], count))
        return None

    def _is_told_here(self, files: FileReader, submission: Submission, fingerprint: str) -> bool:
        """Report on a submission of which nothing can be graded; return whether it is one."""
        problem = files.read(submission).problem
        if problem:
            self._report_problem(submission, problem, fingerprint)
        return bool(problem)

    def _report_problem(self, submission: Submission, problem: str, fingerprint: str = "") -> None:
        course, digest = self.setting.course, submission_hash(submission.path)
        write_reports(unreadable(submission.name, problem, course, digest, fingerprint), course, self.setting.out)


def _require_listener(distributed: Any, address: str) -> None:
    """Connect once and hang up: Client itself waits without an end for a service that listens and says nothing."""
    runner = distributed.utils.LoopRunner()

    async def connect() -> None:
        (await distributed.comm.connect(address, timeout=_ANSWER_SECONDS)).abort()

    runner.start()
    try:
        distributed.utils.sync(runner.loop, connect, callback_timeout=_ANSWER_SECONDS + 1)
    finally:
        runner.stop()


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep a logger's tracebacks from standing before the error that says the same in words."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _distributed() -> Any:
    try:
        import distributed
    except ModuleNotFoundError:
        raise EnvironmentProblem(
            "--dask needs the package distributed, which is not installed: pip install distributed"
        ) from None
    return distributed


def _opening(setting: Setting) -> dict[str, Any]:
    """Return what workers are told, with paths relative to a folder of theirs."""
    course = setting.course
    exercises = f"exercises/{course.slug}" if course.exercises else None
    places = {
        "root": "",
        "notebook": f"notebooks/{course.notebook.name}",
        "class_keys": f"solutions/hidden/{course.slug}",
        "exercises": exercises,
    }
    opening = setting.opening()
    return {**opening, "course": {**opening["course"], **places}, "out": "out", "alone": "alone"}


def _course_files(course: Course) -> dict[str, bytes]:
    """Return what grading reads of the course, by relative path."""
    files = {f"notebooks/{course.notebook.name}": course.notebook.read_bytes()}
    files |= {name: path.read_bytes() for name, path in course.own_files().items()}
    solution = course.root / "solutions" / course.notebook.name
    if solution.is_file():
        files[f"solutions/{solution.name}"] = solution.read_bytes()
    return files
