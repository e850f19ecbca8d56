"""Reports as files: Gradescope's result.json and JUnit XML, written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from labkit.errors import EnvironmentProblem
from labkit.grading.plain_text import plain_text
from labkit.grading.reports.guess_picture import guess_picture
from labkit.grading.score import ExerciseResult, StudentResult
from labkit.links import refuse_links
from labkit.words import join

_SKIPPED = ("not_done", "to_read")
_MOST_SOURCE = 20_000


def exercise_text(result: ExerciseResult) -> str:
    """Return what is said of one exercise, as plain text."""
    if result.pack == "answer":
        return pack_words(result)
    if result.with_references:
        return plain_text(f"{second_run_words(result)}\n{_own_failure(result)}")
    if result.state == "passed":
        return f"Works on all {result.num_cases} hidden cases." if result.exercise.is_code else "Right."
    if result.lost:
        return plain_text(f"Not graded: {result.lost}.")
    if result.state == "not_done":
        return "The cell is as it was handed out, so there is nothing to try yet."
    if result.state == "to_read":
        return f"A person reads this, and gives points for it:\n{plain_text(result.written)}"
    if result.state == "not_graded":
        return "Nothing could be graded."
    return _own_failure(result)


def second_run_words(result: ExerciseResult) -> str:
    """Return what is said of an exercise that passed with reference answers for what it stands on."""
    return (
        f"It needs {join(result.with_references)}. So that no mistake costs points twice, it was tried once more with "
        f"our answers there, and works on all {result.num_cases} hidden cases. With your own it still fails:"
    )


def pack_words(result: ExerciseResult) -> str:
    """Return what is said of a cell that is a pack's answer."""
    return (
        f"This is the answer of the pack that was handed out; it earns {result.score:g} of {result.exercise.points} "
        "points. Write your own in its place to earn them all."
    )


def _own_failure(result: ExerciseResult) -> str:
    failure = result.first_failure
    if failure is None:
        return "Not all cases were tried."
    lines = [f"Tried: {failure.name}", f"Came back: {failure.message}"]
    if failure.hint:
        lines.append(f"Hint: {failure.hint}")
    if result.exercise.is_code:
        passed = sum(case.passed for case in result.cases)
        lines.append(f"{passed} of {result.num_cases} hidden cases passed; {_for_them(result)}.")
    return plain_text("\n".join(lines))


def _for_them(result: ExerciseResult) -> str:
    if not result.exercise.weights:
        return "points are given for all of them together"
    return f"they earn {result.score:g} of {result.exercise.points} points"


def result_json(result: StudentResult, lesson: str) -> dict[str, Any]:
    """Return the result in the schema of Gradescope's results.json."""
    tests = []
    for each in result.exercises:
        tests.append(
            {
                "name": each.exercise.name,
                "number": each.exercise.number or each.exercise.id,
                "score": each.score,
                "max_score": 0.0 if each.exercise.bonus else float(each.exercise.points),
                "status": "passed" if each.state == "passed" else "failed",
                "output": exercise_text(each),
                "output_format": "text",
                "tags": ["bonus"] if each.exercise.bonus else [],
                "visibility": "visible",
                "extra_data": {
                    "exercise": each.exercise.id,
                    "state": each.state,
                    "points": each.exercise.points,
                    "mistake": each.mistake,
                    **({"written": each.written} if each.written else {}),
                    **({"pack": each.pack} if each.pack else {}),
                },
            }
        )
    lines = [result.problem or _summary(result), *result.notes, result.notebook_summary]
    return {
        "score": result.score,
        "execution_time": round(result.seconds, 3),
        "output": plain_text("\n".join(line for line in lines if line)),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
        "extra_data": {
            "name": result.name,
            "lesson": lesson,
            "problem": plain_text(result.problem),
            **({"lost": plain_text(result.lost)} if result.lost else {}),
            "max_score": result.max_score,
            "submission_sha256": result.submission_hash,
            "course_sha256": result.course_hash,
        },
    }


def details(result: StudentResult) -> dict[str, Any]:
    """Return all that pages show of a submission: points, words, code, cases and pictures."""
    return {
        "problem": plain_text(result.problem),
        "lost": plain_text(result.lost),
        "exercises": [_details(each, result.sources.get(each.exercise.id, "")) for each in result.exercises],
        "notes": list(result.notes),
        "notebook": result.notebook_summary,
        "cell_notes": [list(each) for each in result.cell_notes],
        "predictions": [[each.name, str(each), str(guess_picture(each))] for each in result.predictions],
        "weighted": any(each.exercise.weights for each in result.exercises),
    }


def _details(each: ExerciseResult, source: str) -> dict[str, Any]:
    exercise, failure = each.exercise, each.first_failure
    return {
        "id": exercise.id,
        "number": exercise.number or exercise.id,
        "title": exercise.title,
        "state": each.state,
        "points": each.score,
        "max_points": 0.0 if exercise.bonus else float(exercise.points),
        "worth": exercise.points,
        "bonus": exercise.bonus,
        "is_code": exercise.is_code,
        "said": exercise_text(each),
        "mistake": each.mistake,
        "written": each.written,
        "pack": each.pack,
        "lost": each.lost,
        "second_run": second_run_words(each) if each.with_references else "",
        "tried": failure.name if failure else "",
        "came_back": failure.message if failure else "",
        "hint": failure.hint if failure else "",
        "picture": failure.picture if failure else "",
        "line": failure.line if failure else 0,
        "source": source[:_MOST_SOURCE],
        "cases": [
            [case.name, case.passed, "" if case.passed else (case.message.splitlines() or [""])[0]]
            for case in each.cases
        ],
        "num_cases": each.num_cases,
    }


def _summary(result: StudentResult) -> str:
    passed = sum(each.state == "passed" for each in result.exercises)
    return f"{passed} of {len(result.exercises)} exercises work: {result.score:g} of {result.max_score:g} points."


def junit_xml(result: StudentResult, lesson: str) -> bytes:
    """Return the result as JUnit XML, one test case for each exercise, its points as properties."""
    failed = sum(each.state in ("failed", "not_graded") for each in result.exercises)
    skipped = sum(each.state in _SKIPPED for each in result.exercises)
    counts = {"tests": str(len(result.exercises)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    suites = ElementTree.Element("testsuites", {"name": f"labkit {lesson}", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": plain_text(result.name), **counts})
    _properties(suite, {"score": f"{result.score:g}", "max_score": f"{result.max_score:g}"})
    for each in result.exercises:
        title = plain_text(each.exercise.name)
        case = ElementTree.SubElement(suite, "testcase", {"classname": lesson, "name": title})
        values = {"points": f"{each.score:g}", "max_points": f"{each.exercise.points:g}"}
        if each.exercise.bonus:
            values["bonus"] = "true"
        _properties(case, values)
        text = exercise_text(each)
        if each.state in _SKIPPED:
            ElementTree.SubElement(case, "skipped", {"message": text})
        elif each.state != "passed":
            message = result.problem or (each.first_failure.message if each.first_failure else text)
            failure = ElementTree.SubElement(case, "failure", {"message": plain_text(message, 500)})
            failure.text = text
    ElementTree.indent(suites)
    return bytes(ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)) + b"\n"


def _properties(parent: ElementTree.Element, values: dict[str, str]) -> None:
    properties = ElementTree.SubElement(parent, "properties")
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": value})


def as_json(content: object) -> bytes:
    """Return stable JSON text."""
    return (json.dumps(content, indent=2, ensure_ascii=False, sort_keys=False) + "\n").encode("utf-8", "replace")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or as it was before.

    Raises:
        ConfigError: If a link stands in its place or on the way.
        EnvironmentProblem: If the disk is full or the folder cannot be written.
    """
    refuse_links(path, "what is written as")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        try:
            temporary.unlink(missing_ok=True)
        except OSError:
            pass
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentProblem(
                f"the disk is full: {path} was not written. Free some space and run the same command again; finished "
                "reports are kept"
            ) from None
        raise EnvironmentProblem(f"{path} cannot be written ({error.strerror}); choose another --out") from None
