"""Each exercise of a lesson proves four things: the answer passes, the stub says what it is, wrong answers are named,
and an answer in another style passes. test_answers_NN.py says which of them run every time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

import pytest

import labkit
from labkit.checks.exercise import Exercise, functions_for, judge
from labkit.checks.notebook import CheckResult
from labkit.checks.par import measure
from labkit.checks.rooms import exercises, find
from tests.checks.brought import ON_PROCESSES, brought
from tests.checks.lesson_cells import lesson, namespace, slug_of
from tests.checks.wrong_answers import WrongAnswer, written, wrong_answers
from tests.submissions.making import HERE as SUBMISSIONS


def check(exercise_id: str, names: dict[str, Any]) -> CheckResult:
    exercise = find(exercise_id)
    ask = labkit.check if exercise.challenge is None else labkit.challenge
    return ask(exercise_id, *[names[name] for name in exercise.functions])


@cache
def _known(number: str) -> dict[str, Exercise]:
    """Return a lesson's exercises; every class asks six times while tests are collected."""
    return exercises(slug_of(number))


@cache
def styles(number: str) -> dict[str, dict[str, str]]:
    """Return the cells of each legal variant, by style and exercise: of submissions (right_*.py), and of wrong.py."""
    found, known = {}, _known(number)
    for path in sorted((SUBMISSIONS / f"answers_{number}").glob("right_*.py")):
        text = path.read_text(encoding="utf-8")
        cells = dict(re.findall(r"^# %% ([a-z]\w*)\n(.*?)(?=^# %% |\Z)", text, re.M | re.S))
        found[path.stem] = {each: cell for each, cell in cells.items() if each in known}  # the rest are questions
    for each in known:
        found |= {f"{each} {name}": {each: source} for name, source in written(slug_of(number), each).variants.items()}
    return {style: cells for style, cells in found.items() if cells}


class FourProofs:
    """The proofs of one lesson; what starts processes and is not named here runs with `make test-all`.

    What is named takes turns with that of other lessons.

    On processes each lesson runs one of two things every time: a main exercise's answer where its number is even, its
    sample of wrong ones where it is odd. What needs no ranks runs in milliseconds, and of wrong answers, of styles
    and of stubs one does: the first of each exercise, of a lesson's stubs the first.

    Attributes:
        number: The lesson's.
        main: Its main exercises, which meet at least six wrong answers and two legal variants (the others three and
            one); the one with most points is among them.
        sample: Wrong answers on processes or of slow exercises that take turns: exercise and name.
        style_sample: Legal variants on processes that take turns: style and exercise.
        stub_sample: Exercises on processes whose stubs take turns, too.
        exact_par: Whether a par's time and memory are met to the unit, or to 2 and 10 %.
        slow: Exercises without ranks that take seconds all the same: threads, training.
    """

    number: ClassVar[str]
    main: ClassVar[frozenset[str]]
    sample: ClassVar[frozenset[tuple[str, str]]]
    style_sample: ClassVar[frozenset[tuple[str, str]]] = frozenset()
    stub_sample: ClassVar[frozenset[str]] = frozenset()
    exact_par: ClassVar[bool] = True
    slow: ClassVar[frozenset[str]] = frozenset()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        known = _known(self.number)
        quick = [each for each in known if not known[each].distributed and each not in self.slow]

        def case(values: Any, name: str, often: bool, exercise_id: str) -> Any:
            marks = [pytest.mark.in_turn] if exercise_id not in quick else []
            return pytest.param(*values, id=name, marks=marks if often else [pytest.mark.long])

        if "answer" in metafunc.fixturenames:
            answers = wrong_answers(slug_of(self.number))
            first = {each.exercise: each for each in reversed(answers) if each.exercise in quick}.values()
            sample = {each for each in self.sample if not (self._even and known[each[0]].distributed)}
            named = {(each.exercise, each.name) for each in first} | sample
            wanted: Iterable[Any] = [
                case((each,), f"{each.exercise} {each.name}", (each.exercise, each.name) in named, each.exercise)
                for each in answers
            ]
            metafunc.parametrize("answer", wanted)
        elif "style" in metafunc.fixturenames:
            both = [(style, each) for style, cells in styles(self.number).items() for each in cells]
            often = {each: (style, each) for style, each in reversed(both) if each in quick}.values()
            metafunc.parametrize(
                ("style", "exercise_id"),
                [
                    case(pair, f"{pair[1]} {pair[0]}", pair in often or pair in self.style_sample, pair[1])
                    for pair in both
                ],
            )
        elif "stub_id" in metafunc.fixturenames:
            stubs = {*quick[:1], *self.stub_sample}
            metafunc.parametrize("stub_id", [case((each,), each, each in stubs, each) for each in known])
        elif "exercise_id" in metafunc.fixturenames:
            often = self._on_processes()
            metafunc.parametrize(
                "exercise_id",
                [case((each,), each, each in often or not known[each].distributed, each) for each in known],
            )

    @property
    def _even(self) -> bool:
        return int(self.number) % 2 == 0

    def _on_processes(self) -> set[str]:
        """Return the main exercises whose answers run on processes every time: the first, where numbers are even."""
        known = _known(self.number)
        main = sorted(each for each in self.main if known[each].distributed)
        return {*(main[:1] if self._even else ()), *(self.main & ON_PROCESSES)}

    def test_the_lessons_answer_passes_its_check(self, exercise_id: str) -> None:
        result = check(exercise_id, namespace(number=self.number))
        assert result.passed, result

    @pytest.mark.in_turn
    def test_the_lessons_answers_are_right_on_virtual_ranks(self) -> None:
        """Where a case takes milliseconds; on processes runs one main exercise of each lesson with an even number."""
        names = namespace(number=self.number)
        for exercise in _known(self.number).values():
            if exercise.distributed and exercise.id not in self._on_processes() | ON_PROCESSES:
                functions = functions_for(exercise, names)
                for each in exercise.visible[::2]:  # all of them on processes, with `make test-all`
                    verdict = judge(exercise, each, *brought(exercise, functions, each))
                    assert verdict.passed, (exercise.id, each.name, verdict)

    def test_the_stub_fails_with_its_own_message(self, stub_id: str) -> None:
        (stub,) = [c for c in lesson(self.number).cells if c.is_code_exercise and c.exercise == stub_id]
        result = check(stub_id, namespace(extra=stub.student_source, number=self.number))
        assert not result.passed
        (about,) = [each for each in lesson(self.number).exercises if each.id == stub_id]
        assert f"Not done yet. Exercise {about.number}: {about.title}" in repr(result), result

    def test_an_answer_in_another_style_passes(self, style: str, exercise_id: str) -> None:
        cells = styles(self.number)[style]
        result = check(exercise_id, namespace(extra="\n\n".join(cells.values()), number=self.number))
        assert result.passed, result

    def test_a_wrong_answer_fails_with_a_hint_that_names_the_mistake(self, answer: WrongAnswer) -> None:
        result = check(answer.exercise, namespace(extra=answer.source, number=self.number))
        assert not result.passed
        named = result.shown.verdict.mistake if result.shown and result.shown.verdict else ""
        assert named == answer.mistake, result
        assert "hint: " in repr(result)

    def test_every_exercise_has_wrong_answers_enough(self) -> None:
        counts = Counter(answer.exercise for answer in wrong_answers(slug_of(self.number)))
        needed = {each: 6 if each in self.main else 3 for each in _known(self.number)}
        assert not {each: counts[each] for each in needed if counts[each] < needed[each]}
        assert self.main <= set(needed)

    def test_every_exercise_has_legal_variants_enough(self) -> None:
        counts = Counter(each for cells in styles(self.number).values() for each in cells)
        needed = {each: 2 if each in self.main else 1 for each in _known(self.number)}
        assert not {each: counts[each] for each in needed if counts[each] < needed[each]}

    def test_the_exercise_with_most_points_is_a_main_one(self) -> None:
        points = {each.id: each.points for each in lesson(self.number).exercises}
        assert {each for each in points if points[each] == max(points.values())} & self.main

    def test_the_samples_name_what_exists(self) -> None:
        assert {(answer.exercise, answer.name) for answer in wrong_answers(slug_of(self.number))} >= self.sample
        assert {(style, each) for style, cells in styles(self.number).items() for each in cells} >= self.style_sample

    def test_par_is_what_our_own_solution_needs(self) -> None:
        names = namespace(number=self.number)
        rel_time, rel_memory = (0.0, 0.0) if self.exact_par else (0.02, 0.1)
        for exercise in _known(self.number).values():
            if exercise.par is None:
                continue
            wanted = {name: names[name] for name in (*exercise.functions, *exercise.given)}
            measure(exercise.par, wanted)  # the first virtual run of a process lets go of some tensors a little later
            score = measure(exercise.par, wanted)
            assert score.bytes_sent == exercise.par.score.bytes_sent, exercise.id
            assert score.time_ns == pytest.approx(exercise.par.score.time_ns, rel=rel_time), exercise.id
            assert score.peak_bytes == pytest.approx(exercise.par.score.peak_bytes, rel=rel_memory), exercise.id
