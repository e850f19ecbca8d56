"""The bounded server. When a push is answered follows from the script alone: it counts each worker's pushes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from labkit.checks.case import Case, Values
from labkit.checks.values import listed
from labkit.exercises.parameter_server.crowds import crowd_case, is_crowd
from labkit.exercises.parameter_server.scripts import (
    Course,
    Script,
    first_difference,
    follows,
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


def _first_wrong(case: Case, came: Values) -> tuple[int, set[int], set[int]]:
    """Return the first step in which others were answered than should be, who was and who should be; -1 if none."""
    for number, (mine, wanted) in enumerate(zip(listed(came, "steps"), course(case).answers, strict=True)):
        answered, right = {each["push"] for each in mine}, {at for at, _ in wanted}
        if answered != right:
            return number, answered, right
    return -1, set(), set()


def _named(case: Case, came: Values) -> str:
    """Return the mistake that wrong answers point to, the surest sign first."""
    number, answered, right = _first_wrong(case, came)
    script = script_of(case)
    leaves = any(step["op"] == "leave" for step in script)
    first, now, wanted = first_difference(case, came, course)
    signs = {
        _LEFT: leaves and follows(case, came, lambda c: course(c, _never_leaves)),
        _LATE: number in right and not answered,
        _PUSHER: follows(case, came, lambda c: course(c, _own_push_only)),
        _LEAVING: script[first]["op"] == "leave" and not now and bool(wanted),
        _ONE: bool(answered) and answered < right,
        _MEAN: follows(case, came, lambda c: course(c, _of_the_mean)),
        _EARLY: follows(case, came, lambda c: course(c, _at_once)),
        _OF_THE_PUSH: follows(case, came, lambda c: course(c, told=lambda script, at, now: at)),
        _VERSIONS: follows(case, came, lambda c: course(c, _by_versions)),
        _WAIT_TOO: came["version"] == course(case).version and first >= 0 and now == wanted,
    }
    return next((name for name, seen in signs.items() if seen), "")


def _words(text: str) -> list[str]:
    return text.split()


_LEFT, _LATE = "waits for a worker that has left", "one step too late"
_PUSHER, _LEAVING = "releases only the worker that pushes", "leaving releases nobody"
_ONE, _MEAN = "one at a time", "compared with the mean"
_EARLY, _OF_THE_PUSH = "answers too early", "the weights of the push"
_VERSIONS, _WAIT_TOO = "versions in place of clocks", "gradients wait as well"
MISTAKES = {
    _LEFT: "A worker that has left no longer counts: remove its clock, or the others wait for it forever.",
    _LATE: "A worker that is exactly bound ahead has to wait. It may go: at most bound.",
    _PUSHER: "Waiting workers are never released: when the slowest pushes, check all that wait.",
    _LEAVING: (
        "When the slowest leaves, others may continue at once, not at the next push: check all that wait in leave too."
    ),
    _ONE: "Several may continue at the same moment: each time, check all that wait and answer every one that may go.",
    _MEAN: "The clock is compared with the mean of all. The bound is about the slowest.",
    _EARLY: "A worker that is bound + 1 ahead of the slowest gets its answer at once. It has to wait: more than bound.",
    _OF_THE_PUSH: (
        "A worker that had to wait gets weights and version from before the wait. Build the answer when you complete "
        "the future."
    ),
    _VERSIONS: "The bound is compared with versions. It counts steps of workers: a worker's clock goes up with its "
    "own pushes only.",
    _WAIT_TOO: "The weights in an answer are not those of all gradients so far. Each gradient is applied when it "
    "comes; only the answer waits.",
}

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
        "Draw the clocks of three workers as three stacks of coins. After which events can a worker continue that "
        "could not before?",
        "Keep a clock for each active worker, and a future for each waiting one. One helper, called at the end of "
        "push and of leave: take the smallest clock, then answer all that are at most bound above it, with the "
        "current weights.",
        "slowest = min(self.clocks.values(), default=0); for worker in [w for w in self.waiting if self.clocks[w] - "
        "slowest <= self.bound]: self.waiting.pop(worker).set_result((self.version, self.weight.clone()))",
    ),
    named=_named,
    crowd_stuck=_LEFT,
    mistakes=MISTAKES,
)
