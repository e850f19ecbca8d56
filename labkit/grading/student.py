"""Grade one submission: read, rebuild, execute, probe, report."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from labkit.errors import LessonError
from labkit.grading.course import Course
from labkit.grading.file_reader import FileReader
from labkit.grading.from_packs import from_packs
from labkit.grading.guesses import guesses
from labkit.grading.hidden_cases.oracle import HiddenCase, Oracle
from labkit.grading.hidden_cases.probe import CaseRun, Outcome
from labkit.grading.keys import judge_answer
from labkit.grading.notebook.execute import NotebookReader
from labkit.grading.notebook.notebook_run import NotebookRun
from labkit.grading.notebook.other_lesson import other_lesson
from labkit.grading.notebook.rebuild import Rebuilt, rebuild
from labkit.grading.own_folders import own_prefix
from labkit.grading.plain_text import plain_text
from labkit.grading.preloaded.client import Preloaded
from labkit.grading.preloaded.template import Template
from labkit.grading.relay.calls import line_of
from labkit.grading.reports.call_picture import call_picture
from labkit.grading.reports.feedback import feedback_html
from labkit.grading.reports.student_report import as_json, details, junit_xml, result_json, write_whole
from labkit.grading.sandbox.page_cache import forget_reads
from labkit.grading.sandbox.process_tree import end_descendants
from labkit.grading.sandbox.view import seen_folders
from labkit.grading.score import CaseResult, ExerciseResult, StudentResult, steady, submission_secret
from labkit.grading.second_run import Begun, FirstRun, to_replace, with_references
from labkit.grading.setting import Setting
from labkit.grading.submission import Submission, submission_hash
from labkit.grading.turns import CASES, KERNELS, SECOND_RUN, turn
from labkit.launch.gpu_turns import gpu_turn
from labkit.lessons.manifest import Exercise

Progress = Callable[[str], None]
WAITING = "waiting for its turn"
"""The stage in which a submission's time does not run."""
_STATE_WORDS = {
    "timeout": "did not end in time and was interrupted",
    "flood": "printed too much and was interrupted",
    "died": "ended the kernel",
    "not_run": "was not run",
}
_EACH_TIME = "Each case runs your cells anew: what they compute or print outside of functions counts each time."


@dataclass
class Grader:
    """What one worker keeps between submissions.

    Args:
        setting: What is the same for all submissions.
        preloaded: What everything that needs torch is forked from; else one of its own.
    """

    setting: Setting
    preloaded: Preloaded = field(default_factory=Preloaded)

    def __post_init__(self) -> None:
        told = self.setting
        self._hidden = None if told.sandbox == "none" else (*told.course.secrets, told.out, told.alone.parent)
        self._apart = self._case_seconds = 0.0
        self._begun_ones: dict[str, Begun] = {}
        self._unfinished: dict[str, FirstRun] = {}
        self._files = FileReader(told.limits)
        self.oracle = Oracle(told.course, told.limits, self.preloaded)
        self._template = self._new_template(told.gpus[0] if told.gpus else "")
        self._reader = None if told.points_only else NotebookReader(self._hidden, told.limits)

    def _new_template(self, gpu: str) -> Template:
        return Template(self._hidden, self.setting.limits, self.preloaded, gpu)

    def grade(self, submission: Submission, progress: Progress) -> StudentResult:
        """Grade a submission and write its reports; everything it started has ended by then."""
        self.begin(submission, progress)
        return self.go_on(submission.name, progress) or self.finish(submission.name, progress)

    def begin(self, submission: Submission, progress: Progress) -> None:
        """Read a submission and run its notebook."""
        with self._turn(CASES if self.setting.points_only else KERNELS, progress), self._own_folder(progress) as folder:
            self._begun_ones[submission.name] = self._begun(submission, folder, progress)

    def go_on(self, name: str, progress: Progress) -> StudentResult | None:
        """Try the hidden cases of what `begin` began; None where a second run follows, and no report is written yet."""
        begun = self._begun_ones.pop(name)
        with self._turn(CASES, progress), self._own_folder(progress) as folder:
            first = self._first_run(begun, folder, progress)
            if self.setting.second_run and first.is_run_twice(self.setting.course):
                self._unfinished[name] = first
                return None
            return self._concluded(first, first.result.exercises)

    def finish(self, name: str, progress: Progress) -> StudentResult:
        """Do the second run of a submission that `go_on` left unfinished, and write its reports."""
        first = self._unfinished.pop(name)
        with self._turn(SECOND_RUN, progress), self._own_folder(progress) as folder:
            return self._concluded(first, self._second_run(first, folder, progress))

    @contextmanager
    def _own_folder(self, progress: Progress) -> Iterator[Path]:
        """Make a folder for the work on a submission; what that started ends with it."""
        self._progress = progress
        folder = Path(tempfile.mkdtemp(prefix=own_prefix("student")))
        try:
            yield folder
        finally:
            self._end_the_rest()
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the processes kept between submissions."""
        self._template.close()
        self.oracle.close()
        if self._reader is not None:
            self._reader.close()
        self._files.close()
        self.preloaded.close()

    def _end_the_rest(self) -> None:
        """End every process but those that are kept between submissions."""
        kept = [self.oracle.pid, *self._template.pids, *self._files.pids]
        kept += [self._reader.pid] if self._reader else []
        end_descendants(self.preloaded.pid, keep=kept)
        if self._reader is not None:
            self._reader.end_the_rest()
        end_descendants(keep=[self.preloaded.pid, *kept])

    def _begun(self, submission: Submission, folder: Path, progress: Progress) -> Begun:
        """Read a submission and run its notebook.

        Its kernel can call the checks' oracles, so it has ended before any rank knows an input of a hidden case.
        """
        started, self._apart = time.monotonic(), 0.0
        progress("reading")
        digest = submission_hash(submission.path)
        notebook = self._files.read(submission)
        if problem := notebook.problem or other_lesson(notebook, self.setting.course):
            return Begun(submission.name, digest, problem, (), None, None, time.monotonic() - started)
        rebuilt = rebuild(notebook.cells, self.setting.course.pristine, self.setting.limits)
        run = None
        if not self.setting.points_only:
            progress("running the notebook")
            run = self._execute(rebuilt, folder)
        return Begun(
            submission.name, digest, "", notebook.notes, rebuilt, run, time.monotonic() - started - self._apart
        )

    def _first_run(self, begun: Begun, folder: Path, progress: Progress) -> FirstRun:
        started, self._apart, self._case_seconds = time.monotonic(), 0.0, 0.0
        fingerprint, rebuilt, run = self.setting.fingerprint(), begun.rebuilt, begun.run
        if rebuilt is None:
            unread = unreadable(begun.name, begun.problem, self.setting.course, begun.digest, fingerprint)
            return FirstRun(unread, None, begun.seconds, 0.0)
        with self._gpu(progress):
            drawn = self.setting.drawn.get(begun.name)
            exercises = self._probe(rebuilt, folder, progress, drawn)
        result = StudentResult(
            name=begun.name,
            problem="",
            exercises=exercises,
            notes=tuple(steady(note) for note in begun.notes + rebuilt.notes),
            notebook_summary=run.summary if run else "",
            cell_notes=_cell_notes(run) if run else (),
            predictions=guesses(rebuilt, self.setting.course.revealed, run.revealed if run else {}),
            submission_hash=begun.digest,
            course_hash=fingerprint,
            sources=rebuilt.sources(),
        )
        seconds = begun.seconds + time.monotonic() - started - self._apart
        return FirstRun(result, rebuilt, seconds, self._case_seconds)

    def _concluded(self, first: FirstRun, exercises: tuple[ExerciseResult, ...]) -> StudentResult:
        result = first.result
        if not result.problem:
            exercises = from_packs(exercises, result.sources, self.setting.course.pristine, self.setting.packs)
        result = replace(result, exercises=exercises, seconds=first.seconds)
        write_reports(result, self.setting.course, self.setting.out)
        return result

    def _execute(self, rebuilt: Rebuilt, folder: Path) -> NotebookRun:
        if self._reader is None:
            self._reader = NotebookReader(self._hidden, self.setting.limits)
        work = folder / "nb"
        work.mkdir()
        return self._reader.run(rebuilt.notebook, work, self.preloaded)

    @contextmanager
    def _turn(self, of: str, progress: Progress) -> Iterator[None]:
        """Hold a turn on this machine; the wait for it is not of a submission's own time."""
        progress(WAITING)
        with turn(self.setting.alone.parent, of):
            yield

    # ---- hidden cases

    @contextmanager
    def _gpu(self, progress: Progress) -> Iterator[None]:
        """Hold one of the GPUs, where hidden cases run on GPUs; the wait for it is not of a submission's own time."""
        if not self.setting.gpus:
            yield
            return
        begin = time.monotonic()
        with gpu_turn(self.setting.gpus, 1, lambda words: progress(WAITING)) as (gpu,):
            self._apart += time.monotonic() - begin
            progress("on a GPU")
            if gpu != self._template.gpu:
                self._template.close()
                self._template = self._new_template(gpu)
            yield

    def _probe(
        self, rebuilt: Rebuilt, folder: Path, progress: Progress, drawn: Mapping[str, Mapping[str, Any]] | None
    ) -> tuple[ExerciseResult, ...]:
        secret = submission_secret(rebuilt.answers(), self.setting.key)
        results: list[ExerciseResult] = []
        for exercise in self.setting.course.manifest.exercises:
            progress(f"exercise {exercise.number or exercise.id}")
            if exercise.id in rebuilt.unchanged:
                results.append(ExerciseResult(exercise, "not_done", lost=rebuilt.lost.get(exercise.id, "")))
            elif exercise.id in rebuilt.answered:
                given = rebuilt.answered[exercise.id]
                results.append(judge_answer(self.setting.course, exercise, given, drawn))
            elif exercise.kind == "write":
                results.append(ExerciseResult(exercise, "to_read", written=plain_text(rebuilt.written[exercise.id])))
            else:
                result = self._exercise(exercise, rebuilt, secret, folder)
                why = "" if result.state == "passed" else rebuilt.lost.get(exercise.id, "")
                results.append(replace(result, lost=why))
        return tuple(results)

    def _second_run(self, first: FirstRun, folder: Path, progress: Progress) -> tuple[ExerciseResult, ...]:
        """Return the results with what passes beside reference answers.

        It begins when nothing else of this submission is alive, no kernel of another and no other's case: sandboxes
        that run at the same time can signal to each other, and these ranks hold answers. How long it takes is told to
        nobody: it would be more than the one bit.
        """
        results, rebuilt = first.result.exercises, first.rebuilt
        assert rebuilt is not None
        secret, self._case_seconds = submission_secret(rebuilt.answers(), self.setting.key), first.case_seconds
        progress("what stands on a mistake")
        self._template.end_ranks()
        try:
            with self._gpu(progress):
                return tuple(self._again(each, results, rebuilt, secret, folder) for each in results)
        finally:
            self._forget_what_was_read()

    def _forget_what_was_read(self) -> None:
        """Leave no trace of what these ranks read in this machine's memory: a later sandbox would see it."""
        if self.setting.sandbox != "none":
            self._template.end_ranks()
            self._template.forget_reads()
            forget_reads(seen_folders())

    def _again(
        self,
        result: ExerciseResult,
        results: Sequence[ExerciseResult],
        rebuilt: Rebuilt,
        secret: int,
        folder: Path,
    ) -> ExerciseResult:
        """Return a failed exercise as passed if it passes with reference answers for what it needs and failed too."""
        references, manifest = self.setting.course.references, self.setting.course.manifest
        slugs = to_replace(manifest, result, results, references)
        if not slugs:
            return result
        mended = replace(rebuilt, cells=with_references(rebuilt.cells, references, slugs))
        again = self._exercise(result.exercise, mended, secret, folder, fcntl.LOCK_EX)
        if again.state != "passed":
            return result
        names = tuple(manifest.exercise(slug).name for slug in slugs)
        cases = tuple(replace(case, hint="", mistake="") for case in result.cases)  # the mistake was made elsewhere
        return replace(result, state="passed", cases=cases, with_references=names, lost="")

    def _exercise(
        self, exercise: Exercise, rebuilt: Rebuilt, secret: int, folder: Path, beside: int = fcntl.LOCK_SH
    ) -> ExerciseResult:
        hidden = self.oracle.cases(exercise.id, secret)
        if exercise.weights and len(exercise.weights) != len(hidden):
            raise LessonError(
                f"exercise {exercise.id} has {len(hidden)} hidden cases but {len(exercise.weights)} weights; "
                "write one for each, in order, in the header of its cell."
            )
        tried: list[CaseResult] = []
        for case in hidden:
            if self._case_seconds > self.setting.limits.probe_seconds:
                seconds = self.setting.limits.probe_seconds
                words = f"Not tried: the {seconds:g} s for all cases were used up."
                tried.append(CaseResult(case.name, False, words, _EACH_TIME))
                break
            outcome = self._case(exercise, rebuilt, secret, folder, case, beside)
            judged = self.oracle.judge(exercise.id, case, outcome.results, outcome.failure, outcome.wire)
            kind = str(outcome.failure["kind"]) if outcome.failure else ""
            message = plain_text(steady(self._without(folder, judged.message)))
            is_shown = not judged.passed and all(each.passed for each in tried)
            picture = _picture(outcome, case, judged.most_bytes) if is_shown else ""
            line = line_of(outcome.calls, exercise.id, judged.rank, judged.call) if is_shown else 0
            hint = plain_text(judged.hint)
            tried.append(CaseResult(case.name, judged.passed, message, hint, kind, judged.mistake, picture, line))
            if kind in ("timeout", "not_implemented"):
                break
        passed = len(tried) == len(hidden) > 0 and all(case.passed for case in tried)
        return ExerciseResult(exercise, "passed" if passed else "failed", tuple(tried), len(hidden))

    def _case(
        self, exercise: Exercise, rebuilt: Rebuilt, secret: int, folder: Path, case: HiddenCase, beside: int
    ) -> Outcome:
        with self._lock(beside):
            outcome = self._run(exercise, rebuilt, secret, folder, case, self.setting.limits.case_seconds)
        if outcome.failure and outcome.failure["kind"] == "timeout":
            with self._lock(fcntl.LOCK_EX):
                outcome = self._run(exercise, rebuilt, secret, folder, case, self.setting.limits.retry_seconds)
        return outcome

    def _run(
        self, exercise: Exercise, rebuilt: Rebuilt, secret: int, folder: Path, case: HiddenCase, seconds: float
    ) -> Outcome:
        if not self._template.alive:
            self._template.close()
            self._template = self._new_template(self._template.gpu)
        self._template.ready(self.oracle.rank_side)
        work = folder / "case"
        shutil.rmtree(work, ignore_errors=True)
        cells = rebuilt.cells_until(exercise.id)
        return CaseRun(self._template, exercise.id, cells, case, secret, work, seconds, self.setting.limits).run()

    @contextmanager
    def _lock(self, how: int) -> Iterator[None]:
        """Take a turn, and count its time alone: what others keep us waiting is not a submission's own."""
        with open(self.setting.alone, "rb") as file:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                self._progress(WAITING)
                fcntl.flock(file, how)
                self._progress("trying a case")
            begin = time.monotonic()
            try:
                yield
            finally:
                self._case_seconds += time.monotonic() - begin

    @staticmethod
    def _without(folder: Path, text: str) -> str:
        return text.replace(str(folder), "…")


def _picture(outcome: Outcome, case: HiddenCase, most_bytes: int | None) -> str:
    """Return what ranks did in a case, unless where they stood is a matter of chance: when one stopped the others."""
    failure = outcome.failure or {}
    if failure.get("kind") in ("timeout", "not_implemented"):
        return ""
    failed = failure.get("rank") if failure.get("kind") in ("exception", "died", "bad_result") else None
    return call_picture(outcome.calls, case.world_size, failed, most_bytes)


def unreadable(name: str, problem: str, course: Course, digest: str, fingerprint: str) -> StudentResult:
    """Return the result of a submission of which nothing could be graded."""
    exercises = tuple(ExerciseResult(exercise, "not_graded") for exercise in course.manifest.exercises)
    return StudentResult(name, problem, exercises, submission_hash=digest, course_hash=fingerprint)


def write_reports(result: StudentResult, course: Course, out: Path) -> None:
    """Write a student's reports, result.json last: where it is, the others are."""
    folder = out / result.name
    write_whole(folder / "feedback.html", feedback_html(result, course.manifest.title))
    write_whole(folder / "details.json", as_json(details(result)))
    write_whole(folder / "junit.xml", junit_xml(result, course.manifest.lesson))
    write_whole(folder / "result.json", as_json(result_json(result, course.manifest.lesson)))


def _cell_notes(run: NotebookRun) -> tuple[tuple[str, str], ...]:
    notes: list[tuple[str, str]] = []
    for cell in run.cells:
        if cell.state == "error":
            first = f"{cell.error}: {cell.message}" if cell.message else cell.error
            notes.append((cell.id, plain_text(first, 2000)))
        elif cell.state in _STATE_WORDS and cell.state != "not_run":
            notes.append((cell.id, _STATE_WORDS[cell.state]))
    return tuple(notes)
