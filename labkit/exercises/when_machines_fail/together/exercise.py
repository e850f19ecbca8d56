"""A checkpoint of many ranks: after any crash all of them load the same step, each its own part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labkit.checks.case import Case, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING, Each
from labkit.checks.values import flag, integer, integers, records
from labkit.checks.wire import Wire
from labkit.exercises.when_machines_fail.crash_log import unpacked
from labkit.exercises.when_machines_fail.moments import all_moments, is_in
from labkit.exercises.when_machines_fail.together.driver import NOTHING, drive, part, tried
from labkit.exercises.when_machines_fail.ways_to_crash import HOW


def together_case(name: str, steps: list[int], late_s: list[float], *, restart: bool = False) -> Case:
    """Return a case of together.

    Args:
        name: In words.
        steps: Saved in this order.
        late_s: For each rank, seconds of virtual time that it works before each save.
        restart: Whether the last save is broken off and made again, too.
    """
    inputs: dict[str, Value] = {"num_ranks": len(late_s), "steps": steps, "late_s": late_s, "restart": restart}
    return Case(name, 1, (inputs,))


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield the first crash after which ranks do not load what they must."""
    steps, num_ranks = integers(case.inputs[0], "steps"), integer(case.inputs[0], "num_ranks")
    crashes = _crashes(case, got[0])
    if crashes is None:
        yield Finding("", "What was loaded does not belong to what the saves did to the files.")
        return
    for each in crashes:
        num_saved, loads = integer(each, "saved"), each["loads"]
        if not 0 <= num_saved <= len(steps):
            yield Finding("", f"{num_saved} saves are said to have returned, of {len(steps)}.")
            return
        story = _story(steps, each)
        if each["problem"]:
            nothing_yet = not num_saved and "FileNotFoundError" in str(each["problem"])
            name = _NO_NONE if nothing_yet else _of_problem(str(each["problem"]))
            yield Finding(name, f"{story} The restart failed: {each['problem']}.")
            return
        allowed = [num_saved - 1] if each["between"] else [num_saved - 1, num_saved]
        again = [num_saved] if num_saved < len(steps) else []
        if not isinstance(loads, list) or len(loads) != num_ranks:
            yield Finding("", f"{story} {len(loads) if isinstance(loads, list) else 0} ranks loaded.")
            return
        if not all(isinstance(row, list) and len(row) == (4 if again else 2) for row in loads):
            yield Finding("", f"{story} load_together did not give a step and a state on every rank.")
            return
        for place, right in ((0, allowed), (2, again)):
            if right and (problem := _problem(steps, loads, place, right)):
                name, wanted, came = problem
                more = f" Started again, all saved step {steps[num_saved]}." if place else ""
                if name == _OWN and not (num_saved or place) and _none_beside_0(loads, place) and not _ever_apart(got):
                    name = _ZERO
                if not name and "loaded None" in came and each["how"] == "kill":
                    name = _ZERO if wanted == _step(0) and _ever_finds(got) else _NOT_FOUND
                if not name:  # without a power cut nothing is lost but what was deleted
                    name = _RAISES if each["how"] == "kill" else _LOST
                    name = _OLDER if name == _RAISES and (place or each["between"]) else name
                yield Finding(name, f"{story}{more} {came}", wanted)
        if rank := _not_left(each, loads):
            yield Finding("", f"{story} Rank {rank - 1} loaded a state that no file which is left holds.")


def _crashes(case: Case, came: Values) -> list[dict[str, Any]] | None:
    """Return what ranks loaded after each crash, beside what is known of it; None where these are not the crashes."""
    inputs, logs, told = case.inputs[0], unpacked(came["log"]), records(came, "crashes")
    num_ranks, steps = integer(inputs, "num_ranks"), integers(inputs, "steps")
    every = all_moments(logs, num_ranks, len(steps), restart=flag(inputs, "restart")) if logs else None
    every = tried(every or [])
    if len(every) < len(told) or (len(told) < len(every) and not (told and told[-1]["problem"])):
        return None
    states = [part(step, rank)["weight"] for step in steps for rank in range(num_ranks)]
    raw = any(is_in(moment.files, state) for moment in every for state in states)
    return [
        {
            **each, "saved": moment.num_saved, "between": moment.is_between, "what": moment.what, "how": moment.how,
            "left": moment.files, "raw": raw,
        }
        for moment, each in zip(every, told, strict=False)
    ]  # fmt: skip


def _not_left(each: dict[str, Any], loads: list[Any]) -> int:
    """Return 1 more than the rank that loaded what no file holds that is left; 0 where there is none.

    Where no file of the case ever holds states as they lie in memory, they are written in some other form: then there
    are as many different ones as ranks.
    """
    states = [part(int(row[0]), rank)["weight"] for rank, row in enumerate(loads) if row[0] != NOTHING]
    if not each["raw"]:
        return int(bool(states) and len({data for data in each["left"].values() if data}) < len(states))
    return next((rank + 1 for rank, state in enumerate(states) if not is_in(each["left"], state)), 0)


def _ever_finds(got: tuple[Values, ...]) -> bool:
    """Return whether after some crash some rank loaded a step that is not 0."""
    loads = [row for each in records(got[0], "crashes") if isinstance(each["loads"], list) for row in each["loads"]]
    return any(isinstance(row, list) and any(type(step) is int and step > 0 for step in row[::2]) for row in loads)


def _none_beside_0(loads: list[Any], place: int) -> bool:
    """Return whether some ranks loaded step 0 and the others None."""
    return {row[place] for row in loads if type(row[place]) is int} == {0, NOTHING}


def _ever_apart(got: tuple[Values, ...]) -> bool:
    """Return whether after some crash the ranks loaded different steps, and each of them one."""
    loads = [each["loads"] for each in records(got[0], "crashes") if isinstance(each["loads"], list)]
    found = [{row[0] for row in rows if isinstance(row, list) and type(row[0]) is int} for rows in loads]
    return any(len(steps) > 1 and NOTHING not in steps for steps in found)


def _problem(steps: list[int], loads: list[Any], place: int, right: list[int]) -> tuple[str, str, str] | None:
    """Return the mistake, what should have come, and a sentence on what did; None where all is right."""
    good = [steps[number] if number >= 0 else NOTHING for number in right if number < len(steps)]
    wanted = " or ".join(_step(step) for step in good)
    rows = [row if isinstance(row, list) and len(row) > place + 1 else [NOTHING] * (place + 2) for row in loads]
    came = [row[place] if type(row[place]) is int else f"{row[place]!r:.40}" for row in rows]
    said = ", ".join(f"rank {rank} {_step(step)}" for rank, step in enumerate(came))
    if strange := [step for step in came if isinstance(step, str)]:
        return _NO_NUMBER, wanted, f"load_together came with step {strange[0]}, which is no int. Expected {wanted}."
    if any(step != came[0] for step in came):
        name = _RAISES if place and NOTHING in came else _OWN  # all have saved by then
        return name, wanted, f"Ranks loaded different steps: {said}."
    if came[0] not in good:
        return "", wanted, f"All ranks loaded {_step(came[0])}, expected {wanted}."
    if came[0] == NOTHING:
        states = [row[place + 1] for row in rows]
        return None if not any(each is not None for each in states) else ("", "None", "None came with a state.")
    for rank, row in enumerate(rows):
        state, mine = row[place + 1], part(int(came[0]), rank)["weight"].tolist()
        if repr(state) != repr(mine):
            said = f"At step {came[0]}, rank {rank} loaded {state!s:.80}, expected {mine}."
            others = [part(int(came[0]), other)["weight"].tolist() for other in range(len(rows))]
            whose = next((other for other, theirs in enumerate(others) if repr(theirs) == repr(state)), None)
            name = _OTHER if whose is None else _RANK_0 if whose == 0 else _SHARED
            return name, str(mine), said if whose is None else f"{said} It is what rank {whose} saved."
    return None


def _step(step: Any) -> str:
    return "None" if step == NOTHING else f"step {step}"


def _story(steps: list[int], each: dict[str, Value]) -> str:
    saved, how = integer(each, "saved"), HOW.get(str(each["how"]), "").replace("the program was", "a rank was")
    if str(each["what"]).startswith("killed"):
        return f"In its save of step {steps[-1]} rank 0 was {each['what']}; all saved again. Then {how}."
    if each["between"]:
        return f"After all ranks had saved step {steps[saved - 1]}, {how}." if saved else f"Before any save, {how}."
    return f"While step {steps[min(saved, len(steps) - 1)]} was saved, {each['what']}, {how}."


_PYTHONS_OWN = ("TypeError", "AttributeError", "NameError", "IndexError", "KeyError", "UnboundLocalError")
"""Errors that say what is wrong and on which line."""


def _of_problem(text: str) -> str:
    if any(word in text for word in ("invalid literal for int", "EOFError", "JSONDecodeError", "PytorchStreamReader")):
        return _UNSYNCED
    if "Exists" in text or "not empty" in text:
        return _AGAIN
    if any(error in text for error in _PYTHONS_OWN):
        return ""
    waits = ("wait", "deadlock", "Watchdog", "called", "did not")
    return _BARRIER if any(word in text for word in waits) else _RAISES


_OWN, _LOST, _RANK_0, _OTHER, _BARRIER, _AGAIN, _RAISES, _UNSYNCED, _IN_THE_WAY, _ZERO, _NOT_FOUND = (
    "each rank its own latest", "a step is lost", "rank 0's state alone", "another state",
    "a call that some never make", "a crash in mid-checkpoint for ever", "what is not everywhere",
    "contents not synced", "in each other's way", "step 0 taken for none", "not found again",
)  # fmt: skip
_SHARED, _NO_NUMBER, _NO_NONE = "one file for several ranks", "a step that is no int", "an error for none"
_OLDER = "an older step"

EXERCISE = declared(
    id="together",
    functions=("save_together", "load_together"),
    driver=drive,
    oracle=lambda case: [],
    structure=lambda case: [{"crashes": Each({"loads": ANYTHING, "problem": str}, least=1), "log": ANYTHING}],
    looks=(find,),
    mistakes=(
        Mistake(_OWN,
                "A crash can come when some ranks have saved a step and others have not. Load the newest step that "
                "all have, the smallest of their newest ones, also where a rank has a newer one itself."),
        Mistake(_LOST,
                "Once a save has returned on all ranks, its step must come back. Is each new folder's name synced, in "
                "the folder above? Also where a crash left the name already?"),
        Mistake(_OLDER, "No power failed and all ranks had saved the newest step, so each finds it: load the newest "
                "that all of them have, and not one before it."),
        Mistake(_RANK_0,
                "Rank 0 saved for all, and each rank's state is its own: a sampler, random numbers, a shard. Every "
                "rank saves what it has, under a name of its own."),
        Mistake(_ZERO, "If a rank has no checkpoint, no step is one that all have. Let -1 stand for none: the minimum "
                "is then below every step. 0 is a step, because a run may save at step 0, and a large number leaves "
                "the rank out of the minimum."),
        Mistake(_NOT_FOUND, "No power failed, so all files are as save_together left them, and load_together returns "
                "None. Is each rank's state saved at all, does it look where they are, and when does it return None?"),
        Mistake(_SHARED,
                "Two ranks wrote the same file, and the last one's is left. Every rank saves under a name of its own. "
                "Mind the order of a path: what stands left of an absolute one is lost in 'rank-0' / folder."),
        Mistake(_OTHER, "A rank loaded a state that it has not saved at this step."),
        Mistake(_BARRIER,
                "Some ranks found a checkpoint and others did not, and only some of them made the call. Whatever the "
                "files say, all ranks must make the same calls."),
        Mistake("a barrier that some never call", "dist.barrier() returns when every rank has called it: call it on "
                "all of them.", says=("operation timeout: barrier",)),
        Mistake(_AGAIN,
                "What the crash left is in the way, and so every restart fails at the same place. Expect leftovers."),
        Mistake(_NO_NUMBER, "Return the step as an int: of a tensor, newest.item()."),
        Mistake(_NO_NONE,
                "No step is complete yet, and a rank that finds no files raises an error. It has no checkpoint: it "
                "takes part in the call all the same, and all ranks return None."),
        Mistake(_UNSYNCED, "A file was read whose contents had not all reached the disk. Sync each file, also a small "
                "one that names the newest step, and give it its name only then: a crash can come before the sync."),
        Mistake(_IN_THE_WAY, "One rank renamed or removed a file that another still writes, or used a folder before it "
                "was made. Give each rank names of its own, and let none go on before what it needs is there.",
                says=("FileNotFoundError",), certain=True),
        Mistake(_RAISES,
                "A rank ran a whole save ahead, and deleted what the others still need. Let none begin the next save "
                "before all have this one: dist.barrier().", general=True),
    ),
    visible=(
        together_case("two ranks, from step 0 on", [0, 1], [0.0, 0.1]),
        together_case("rank 0 is late", [8, 9, 10], [0.5, 0.0]),
        together_case("three ranks", [5, 6], [0.0, 0.3, 0.1]),
        together_case("killed in the first save, and started again", [4], [0.1, 0.0], restart=True),
    ),
    distributed=False,
    seconds=90.0,
    hints=(
        "The power fails when rank 0 has saved step 200 and rank 1 has not. What does each find, and what should both "
        "load?",
        "A folder for each rank, and your own save_checkpoint in it. The newest step that all have is the smallest of "
        "their newest ones: an all_reduce with MIN. Who has nothing takes part, too.",
        "newest = torch.tensor(-1 if found is None else found[0]); dist.all_reduce(newest, op=dist.ReduceOp.MIN); "
        "then load_checkpoint(mine, at_most=newest.item()). Saving: mkdir, sync(folder), save_checkpoint, "
        "dist.barrier().",
    ),
)  # fmt: skip
