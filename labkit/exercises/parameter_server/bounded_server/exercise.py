"""The bounded server. When a push is answered follows from the script alone: it counts each worker's pushes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from labkit.checks.case import Case, Got
from labkit.checks.declared import Mistake, Seen, either
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.parameter_server.crowds import crowd_case, is_crowd
from labkit.exercises.parameter_server.scripts import (
    Course,
    Script,
    answers_in,
    leave,
    more_of,
    push,
    results,
    same,
    script_case,
    script_of,
    workers_of,
)
from labkit.exercises.parameter_server.server_mistakes import WITH_FUTURES, Kind, as_if, problem
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


def bounded_case(name: str, seed: int, said: str, num_workers: int, bound: int, lr: float = 0.5) -> Case:
    """Return a case of bounded_server: "2" lets worker 2 push, "-2" lets it leave; who waits or left is passed over.

    The versions that workers read follow from the rules.
    """
    draw = drawer(seed, 3)
    script: Script = []
    for word in said.split():
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


def course(case: Case, may_go: Open = within, *, told_at_once: bool = False) -> Course:
    """Return what happens: each push makes a version at once, and is answered in the first step in which it may be.

    Args:
        case: With a script.
        may_go: When a push may be answered.
        told_at_once: Whether an answer is put together when its push comes, and not when it goes out.
    """
    script, count, bound = script_of(case), workers_of(case), more_of(case)
    pushes = [number for number, step in enumerate(script) if step["op"] == "push"]
    answers: list[list[tuple[int, int]]] = [[] for _ in script]
    version = [sum(number <= now for number in pushes) for now in range(len(script))]
    for at in pushes:
        now = next((n for n in range(at, len(script)) if may_go(script, at, n, count, bound)), None)
        if now is not None:
            answers[now].append((at, version[at if told_at_once else now]))
    updates = [(place, script[at]["worker"], script[at]["version"], place) for place, at in enumerate(pushes)]
    changes = tuple(script[at]["gradient"] for at in pushes)
    return Course(tuple(map(tuple, answers)), tuple(updates), changes)


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


def _own_clock(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    """Return whether a worker has pushed at most bound times, as if the slowest stood at 0 for good."""
    return _clock(script, script[at]["worker"], at) <= bound


def _of_the_sum(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    slowest = min(_clocks(script, now, count).values(), default=0)
    return _clock(script, script[at]["worker"], at) + slowest <= bound


def _who_has_pushed(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    """Return whether nobody who is there and has pushed is more than bound behind."""
    clocks = [clock for clock in _clocks(script, now, count).values() if clock]
    return lead(_clock(script, script[at]["worker"], at), clocks) <= bound


def _by_staleness(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    """Return whether at most bound versions lie between the one that was read and the one it was applied to."""
    return bool(sum(step["op"] == "push" for step in script[:at]) - script[at]["version"] <= bound)


def _stale_now(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    """Return whether bound versions at most were made since the one that was read, or the worker is the slowest."""
    clocks = _clocks(script, now, count)
    slowest = clocks.get(script[at]["worker"]) == min(clocks.values(), default=0)
    made = sum(step["op"] == "push" for step in script[: now + 1]) - 1
    return bool(slowest or made - script[at]["version"] <= bound)


def _off_by(more: int) -> Open:
    return lambda script, at, now, count, bound: within(script, at, now, count, bound + more)


def _but_for_one(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    """Return whether all who are there but one are at most bound behind."""
    own = _clock(script, script[at]["worker"], at)
    return sum(own - clock > bound for clock in _clocks(script, now, count).values()) <= 1


def _versions_for_clocks(script: Script, at: int, now: int, count: int, bound: int) -> bool:
    """Return whether a worker may go where the clock of each is the version that it read for its last push.

    A push that was not answered when its worker pushed again is forgotten.
    """
    read = dict.fromkeys(_clocks(script, now, count), 0)
    read |= {step["worker"]: step["version"] for step in script[: now + 1] if step["worker"] in read}
    last = not any(step["worker"] == script[at]["worker"] for step in script[at + 1 : now + 1])
    return last and bool(lead(script[at]["version"], read.values()) <= bound)


def _as_if(*ways: Open) -> Seen:
    return as_if(*(lambda case, way=way: course(case, way) for way in ways))


def _told_at_once(case: Case) -> Course:
    return course(case, told_at_once=True)


def _steps(case: Case, got: Got) -> Iterator[tuple[int, set[int], set[int]]]:
    """Yield each step, which pushes were answered in it, and which should have been."""
    if isinstance(got, tuple) and "steps" in got[0] and not is_crowd(case):
        for now, (came, right) in enumerate(zip(listed(got[0], "steps"), course(case).answers, strict=True)):
            yield now, {each["push"] for each in came}, {at for at, _ in right}


def _nobody_at_all(case: Case, got: Got, wire: Wire) -> bool:
    steps = list(_steps(case, got))
    return bool(steps) and not any(came for _, came, _ in steps)


def _first_wrong(sign: Callable[[Case, int, set[int], set[int]], bool]) -> Seen:
    """Return the mark that the first step with wrong answers bears: sign(case, step, who was answered, who should)."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        wrong = (each for each in _steps(case, got) if each[1] != each[2])
        return any(sign(case, *each) for each in list(wrong)[:1])

    return seen


def _exactly_bound_ahead_waits(case: Case, now: int, came: set[int], right: set[int]) -> bool:
    """Return whether a push that is exactly bound ahead was not answered, and is the first such."""
    script, count, bound = script_of(case), workers_of(case), more_of(case)
    exactly = [n for n in range(now + 1) if script[n]["op"] == "push"
               and within(script, n, n, count, bound) and not within(script, n, n, count, bound - 1)]  # fmt: skip
    return exactly == [now] and now in right - came


def _counts_versions(case: Case, now: int, came: set[int], right: set[int]) -> bool:
    """Return whether a push was not answered that is too far ahead where a clock is the version a push made."""
    script = script_of(case)
    made = dict.fromkeys(_clocks(script, now, workers_of(case)), 0)
    for number, step in enumerate(script[: now + 1]):
        made[step["worker"]] = sum(each["op"] == "push" for each in script[: number + 1])
    return now in right - came and lead(made[script[now]["worker"]], made.values()) > more_of(case)


def _last_one_waits(case: Case, now: int, came: set[int], right: set[int]) -> bool:
    """Return whether the last worker that remains was not answered, and nobody else was to be."""
    return list(_clocks(script_of(case), now, workers_of(case))) == [script_of(case)[now]["worker"]] and not came


def _nobody_after_leaving(case: Case, now: int, came: set[int], right: set[int]) -> bool:
    return script_of(case)[now]["op"] == "leave" and not came


def _more_after_leaving(case: Case, now: int, came: set[int], right: set[int]) -> bool:
    return script_of(case)[now]["op"] == "leave" and came > right


def _version_lags(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether all is right but for versions that are too small."""
    if not isinstance(got, tuple) or "steps" not in got[0] or is_crowd(case):
        return False
    told = [answer for step in answers_in(got[0]) for answer in step]
    right = [answer for step in answers_in(results(case, course(case))) for answer in step]
    if len(told) != len(right) or not same(
        [{**each, "version": 0} for each in told], [{**each, "version": 0} for each in right]
    ):
        return False
    return any(one["version"] < other["version"] for one, other in zip(told, right, strict=True))


def _answers_in_time(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether all are answered when they must be, and what is answered first has the right weights."""
    steps = list(_steps(case, got))
    if not steps or not isinstance(got, tuple) or any(came != right for _, came, right in steps):
        return False
    answers = [list(filter(None, listed(each, "steps"))) for each in (got[0], results(case, course(case)))]
    if not torch.allclose(*(each[0][0]["weight"].double() for each in answers)):
        return False
    pairs = [pair for step in zip(*answers, strict=True) for pair in zip(*step, strict=True)]
    return any(not torch.allclose(*(each["weight"].double() for each in pair)) for pair in pairs)


MISTAKES = (
    Mistake("the last one waits",
            "A worker that is alone, because all others have left, waits for nobody: its push is answered at once. A "
            "smallest clock that leaves out the worker itself finds none there.",
            seen=_first_wrong(_last_one_waits)),
    Mistake("waits for a worker that has left",
            "A worker that has left no longer counts: remove its clock, or the others wait for it forever.",
            seen=lambda *run: _as_if(_never_leaves)(*run) or problem("crowd", "Deadlock")(*run)),
    Mistake("nobody is answered",
            "No push was ever answered. At the end of each push look at all that wait, and complete the futures of "
            "those that may go. The slowest is the slowest of all, also of those that wait.", seen=_nobody_at_all),
    Mistake("one step too late",
            "A worker that is exactly bound ahead has to wait. It may go: at most bound. And a push is counted, and "
            "among those that wait, before you look who may go.",
            seen=_first_wrong(_exactly_bound_ahead_waits)),
    Mistake("releases only the worker that pushes",
            "A worker that waits is not released when the slowest has come near enough: at each push, check all that "
            "wait.",
            seen=_as_if(_own_push_only)),
    Mistake("leaving releases nobody",
            "When the slowest leaves, others may continue at once, not at the next push: in leave, take its clock "
            "away and then check all that wait.", seen=_first_wrong(_nobody_after_leaving)),
    Mistake("leaving releases too many",
            "When a worker leaves, some are answered who are still too far ahead of another: as after a push, only "
            "those may go that are at most bound ahead of the slowest that is left.",
            seen=_first_wrong(_more_after_leaving)),
    Mistake("the slowest stands at 0",
            "A push is answered only while its worker's own clock is at most the bound, as if the slowest stayed at 0 "
            "for good: subtract the smallest clock there is now. Is there a clock of a worker that does not exist?",
            seen=_as_if(_own_clock)),
    Mistake("added to the slowest",
            "The slowest worker's clock is added: what must be at most the bound is how far a worker is ahead, its "
            "clock minus the smallest.", seen=_as_if(_of_the_sum)),
    Mistake("counts only who has pushed",
            "Only workers that have pushed are compared. All are there from the start, with a clock of 0: who has not "
            "pushed yet is the slowest.", seen=_as_if(_who_has_pushed)),
    Mistake("the version counts answers",
            "The version is too small while a push waits: it counts gradients that were applied, so raise it in push, "
            "at once, also where the answer waits.", seen=_version_lags),
    Mistake("one at a time",
            "Several may continue at the same moment: each time, check all that wait and answer every one that may "
            "go.", seen=_first_wrong(lambda case, now, came, right: bool(came) and came < right)),
    Mistake("compared with the mean",
            "A push is answered although one worker is too far behind, as if the clock were compared with the mean of "
            "all, or with all but one. The slowest alone decides: compare with the smallest clock.",
            seen=_as_if(_of_the_mean, _but_for_one)),
    Mistake("answers too early",
            "Every push is answered at once, also that of a worker bound + 1 ahead of the slowest. Compare its clock, "
            "with this push, to the smallest of all. Whoever has just pushed is always near the fastest, near those "
            "that wait (it is one of them), and near a clock that goes up only with the answer.",
            seen=_as_if(_at_once, _off_by(1)), general=True),
    Mistake("nobody is left",
            "When the last worker leaves, no clock is left to take the smallest of: min(..., default=0).",
            says=("empty sequence", "empty iterable")),
    Mistake("the weights of the push",
            "A worker that had to wait gets weights and version from before the wait. Build the answer when you "
            "complete the future.", seen=as_if(_told_at_once)),
    Mistake("versions in place of clocks",
            "The bound is compared with versions, which everybody makes. It counts steps of workers: a worker's clock "
            "goes up with its own pushes only.",
            seen=either(_first_wrong(_counts_versions), _as_if(_by_staleness, _stale_now, _versions_for_clocks))),
    Mistake("gradients wait as well",
            "The weights in an answer are not those of all gradients so far. Each gradient is applied when it comes; "
            "only the answer waits.", seen=_answers_in_time),
    *WITH_FUTURES,
)  # fmt: skip

EXERCISE = Kind("BoundedServer", course, answers_run_free=True).exercise(
    id="bounded_server",
    visible=(
        bounded_case("3 workers, bound 1", 41, "0 1 0 2 0 1 2 2 0 1", 3, 1),
        bounded_case("3 workers, bound 0: in lock step", 42, "0 1 2 2 0 1 1 0 2", 3, 0),
        bounded_case("3 workers, bound 2, one is slow", 43, "0 1 0 1 0 1 2 0 1 2 2", 3, 2),
        bounded_case("the slowest leaves", 44, "0 1 0 0 1 -2 1 0 -1 0 0", 3, 1),
        bounded_case("one leaves who is not the slowest, then all", 45, "0 1 0 -1 0 2 2 0 -0 2 2 2 -2", 3, 1),
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
    mistakes=MISTAKES,
)
