"""The bounded server. When a push is answered follows from the script alone: it counts each worker's pushes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from labkit.checks.case import Case, Got
from labkit.checks.judged import Mistake
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.crowds import crowd_case, is_crowd
from labkit.exercises.parameter_server.scripts import (
    Course,
    Script,
    as_if,
    judge_script,
    leave,
    more_of,
    push,
    script_case,
    script_of,
    workers_of,
)
from labkit.exercises.parameter_server.server_mistakes import server_exercise
from labkit.exercises.remote_calls.drawn import drawer
from labkit.plans.staleness import lead

Open = Callable[[Script, int, int, int, int], bool]
"""Whether push number `at` may be answered in step `now`: (script, at, now, number of workers, bound)."""


def _clock(script: Script, worker: int, now: int) -> int:
    return sum(step["op"] == "push" and step["worker"] == worker for step in script[: now + 1])


def _clocks(script: Script, now: int, count: int) -> dict[int, int]:
    """Return the clock of each worker that is still there after a step."""
    gone = {step["worker"] for step in script[: now + 1] if step["op"] == "leave"}
    return {worker: _clock(script, worker, now) for worker in range(count) if worker not in gone}


def within(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    """Return whether nobody who is there is more than bound behind."""
    own = _clock(script, script[at]["worker"], at)
    return lead(own, _clocks(script, now, count).values()) <= bound


def bounded_case(name: str, seed: int, said: Sequence[str], num_workers: int, bound: int, lr: float = 0.5) -> Case:
    """Return a case of bounded_server: "2" lets worker 2 push, "-2" lets it leave; who waits or left is passed over.

    The versions that workers read follow from the rules.
    """
    draw = drawer(seed, 3)
    script: Script = []
    for word in said:
        worker = int(word.lstrip("-"))
        mine = [number for number, step in enumerate(script) if step["op"] == "push" and step["worker"] == worker]
        version = _told(script, mine[-1], num_workers, bound) if mine else 0
        if version is None or any(step["op"] == "leave" and step["worker"] == worker for step in script):
            continue
        script.append(leave(worker) if word.startswith("-") else push(worker, version, draw()))
    return script_case(name, "BoundedServer", script, num_workers, lr, [bound])


def _told(script: Script, at: int, count: int, bound: int) -> int | None:
    """Return the version that the answer to a push says, None if it has not been answered so far."""
    now = next((n for n in range(at, len(script)) if within(script, at, n, count, bound)), None)
    return None if now is None else sum(step["op"] == "push" for step in script[: now + 1])


def course(case: Case, may_go: Open = within, told: Callable[[Script, int, int], int] | None = None) -> Course:
    """Return what happens: each push makes a version at once, and is answered in the first step in which it may be."""
    if is_crowd(case):
        return Course((), (), ())
    script, count, bound = script_of(case), workers_of(case), more_of(case)
    pushes = [number for number, step in enumerate(script) if step["op"] == "push"]
    answers: list[list[tuple[int, int]]] = [[] for _ in script]
    version = [sum(number <= now for number in pushes) for now in range(len(script))]
    for at in pushes:
        now = next((n for n in range(at, len(script)) if may_go(script, at, n, count, bound)), None)
        if now is not None:
            answers[now].append((at, version[now]))
    updates = [(place, script[at]["worker"], script[at]["version"], place) for place, at in enumerate(pushes)]
    changes = tuple(script[at]["gradient"] for at in pushes)
    if told is None:
        return Course(tuple(map(tuple, answers)), tuple(updates), changes)
    early = [[(at, version[at]) for at, _ in each] for each in answers]
    return Course(tuple(map(tuple, early)), tuple(updates), changes)


def _at_once(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    return True


def _never_leaves(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    stay = [step if step["op"] == "push" else {"op": "none"} for step in script]
    return within(stay, at, now, count, bound)


def _own_push_only(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    return now == at and within(script, at, now, count, bound)


def _of_the_mean(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    clocks = _clocks(script, now, count)
    return _clock(script, script[at]["worker"], at) - sum(clocks.values()) / max(1, len(clocks)) <= bound


def _by_versions(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    applied = sum(step["op"] == "push" for step in script[:at])
    return applied - int(script[at]["version"]) <= bound or (within(script, at, now, count, 0) and now > at)


def _judge(case: Case, got: Got) -> str:
    return judge_script(case, got, course, answers_run_free=True).message if not is_crowd(case) else ""


def _gradients_wait(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether some answer lacks gradients whose own push was not answered yet, and in the end all are there."""
    if not isinstance(got, tuple) or is_crowd(case) or got[0].get("version") != course(case).version:
        return False
    return "The weights in the answer" in _judge(case, got) or "says version" in _judge(case, got)


def _nobody_goes_when_one_leaves(case: Case, got: Got, wire: Wire) -> bool:
    message = _judge(case, got) if isinstance(got, tuple) else ""
    return "leave" in message and "). Now answered: nobody" in message


def _first_wrong(case: Case, got: Got) -> tuple[int, set[int], set[int]]:
    """Return the first step in which others were answered than should be, who was and who should be; -1 if none."""
    if isinstance(got, tuple) and "steps" in got[0]:
        for number, (mine, wanted) in enumerate(zip(cast(Any, got[0]["steps"]), course(case).answers, strict=True)):
            came, right = {each["push"] for each in mine}, {at for at, _ in wanted}
            if came != right:
                return number, came, right
    return -1, set(), set()


def _pusher_waits_in_vain(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the first thing that is wrong is that a push lets nobody go, not even who pushed."""
    number, came, right = _first_wrong(case, got)
    return number in right and not came


def _some_of_them(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the first thing that is wrong is that not all were answered who should have been, but some."""
    _, came, right = _first_wrong(case, got)
    return bool(came) and came < right


def _crowd_stands_still(case: Case, got: Got, wire: Wire) -> bool:
    return is_crowd(case) and isinstance(got, tuple) and "Deadlock" in str(got[0].get("words"))


def _words(text: str) -> list[str]:
    return text.split()


EXERCISE = server_exercise(
    id="bounded_server",
    server="BoundedServer",
    rule=course,
    gradients_a_version=lambda case: 1,
    answers_run_free=True,
    visible=(
        bounded_case("3 workers, bound 1", 41, _words("0 1 0 2 0 1 2 2 0 1"), 3, 1),
        bounded_case("3 workers, bound 0: in lock step", 42, _words("0 1 2 2 0 1 1 0 2"), 3, 0),
        bounded_case("3 workers, bound 2, one is slow", 43, _words("0 1 0 1 0 1 2 0 1 2 2"), 3, 2),
        bounded_case("the slowest leaves", 44, _words("0 1 0 0 1 -2 1 0 -1 0 0"), 3, 1),
        bounded_case("one leaves who is not the slowest, then all", 45, _words("0 1 -1 0 0 2 2 0 -0 2 2 2 -2"), 3, 1),
        crowd_case("5 workers at the same time, over RPC", "BoundedServer", 46, 5, 4, [1]),
    ),
    hints=(
        "Draw the clocks of three workers as three stacks of coins. After which events can somebody go on who could "
        "not before?",
        "Keep a clock for each worker that is there, and for each that waits its future. One helper, called at the end "
        "of push and of leave: the smallest clock, then answer all who are at most bound above it, with the weights of "
        "now.",
        "slowest = min(self.clocks.values(), default=0); for worker in [w for w in self.waiting if self.clocks[w] - "
        "slowest <= self.bound]: self.waiting.pop(worker).set_result((self.version, self.weight.clone()))",
    ),
    mistakes=(
        Mistake(
            "who has left is waited for",
            "A worker that has left counts no more: take its clock out, or the others wait for it for ever.",
            lambda case, got, wire: (
                (
                    as_if(course, lambda c: course(c, _never_leaves))(case, got, wire)
                    and any(step["op"] == "leave" for step in script_of(case))
                )
                or _crowd_stands_still(case, got, wire)
            ),
        ),
        Mistake(
            "one step too late",
            "A worker that is exactly bound ahead has to wait. It may go: at most bound.",
            _pusher_waits_in_vain,
        ),
        Mistake(
            "only the one who pushes is let go",
            "Nobody who waits is ever let go: when the slowest pushes, look through all who wait.",
            as_if(course, lambda case: course(case, _own_push_only)),
        ),
        Mistake(
            "leaving lets nobody go",
            "When the slowest leaves, others may go on at once, not at the next push: look through all who wait, in "
            "leave too.",
            _nobody_goes_when_one_leaves,
        ),
        Mistake(
            "one at a time",
            "Several may go on at the same moment: look through all who wait, each time, and answer every one who may.",
            _some_of_them,
        ),
        Mistake(
            "compared with the mean",
            "The clock is compared with the mean of all. The bound is about the slowest.",
            as_if(course, lambda case: course(case, _of_the_mean)),
        ),
        Mistake(
            "answers too early",
            "A worker that is bound + 1 ahead of the slowest gets its answer at once. It has to wait: more than bound.",
            as_if(course, lambda case: course(case, _at_once)),
        ),
        Mistake(
            "the weights of the push",
            "Who had to wait gets weights and version from before the waiting. Put the answer together when you "
            "complete the future.",
            as_if(course, lambda case: course(case, told=lambda script, at, now: at)),
        ),
        Mistake(
            "versions in place of clocks",
            "The bound is compared with versions. It counts steps of workers: a worker's clock goes up with its own "
            "pushes only.",
            as_if(course, lambda case: course(case, _by_versions)),
        ),
        Mistake(
            "gradients wait as well",
            "The weights in an answer are not those of all gradients so far. Each gradient is applied when it comes; "
            "only the answer waits.",
            _gradients_wait,
        ),
    ),
)
