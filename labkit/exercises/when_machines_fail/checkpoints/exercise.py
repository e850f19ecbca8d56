"""Checkpoints: whatever crash comes at whatever moment, the newest that is whole comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import difference
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING, Each
from labkit.checks.values import flag, integer, integers, listed, records
from labkit.checks.wire import Wire
from labkit.exercises.remote_calls.drawn import drawer
from labkit.exercises.when_machines_fail.checkpoints.driver import STUB, drive, is_cut
from labkit.exercises.when_machines_fail.crash_log import unpacked
from labkit.exercises.when_machines_fail.moments import all_moments, is_in
from labkit.exercises.when_machines_fail.ways_to_crash import HOW

LEAST_OF_WEIGHTS = 0.8
"""So much of their bytes drawn weights have that are not 0, in whatever form: more than a file with a hole has."""


def checkpoint_case(name: str, seed: int, steps: list[int], cut: int = -1, *, restart: bool = False) -> Case:
    """Return a case of checkpoints.

    Args:
        name: In words.
        seed: Draws the weights.
        steps: Saved in this order.
        cut: How many bytes are left at the end of what the last save wrote; -1 for all.
        restart: Whether the last save is broken off and made again, too.
    """
    draw = drawer(seed, 300)
    return Case(name, 1, ({"steps": steps, "values": [draw() for _ in steps], "cut": cut, "restart": restart},))


def structure(case: Case) -> list[Any]:
    """Return what comes of each crash: what was loaded; and what the saves did to the files."""
    return [{"crashes": Each({"files_later": int, "files_again": int, "loaded": ANYTHING}, least=1), "log": ANYTHING}]


def _crashes(case: Case, came: Values) -> list[dict[str, Any]] | None:
    """Return what was loaded after each crash, beside what is known of it; None where these are not all of them."""
    inputs, logs = case.inputs[0], unpacked(came["log"])
    num_saves, cut = len(listed(inputs, "steps")), integer(inputs, "cut")
    every = all_moments(logs, 1, num_saves, restart=flag(inputs, "restart")) if logs else None
    told = records(came, "crashes")
    if not every or len(every) != len(told):
        return None
    raw = any(is_in(moment.files, value) for moment in every for value in listed(inputs, "values"))
    return [
        {
            **each, "saved": moment.num_saved, "between": moment.is_between, "what": moment.what, "how": moment.how,
            "cut": is_cut(moment, num_saves, cut), "files": sum(data is not None for data in moment.files.values()),
            "renamed": moment.has_renamed, "left": moment.files, "raw": raw,
        }
        for moment, each in zip(every, told, strict=True)
    ]  # fmt: skip


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield the first crash after which another checkpoint comes back than must, and files that are left over."""
    inputs, crashes = case.inputs[0], _crashes(case, got[0])
    steps = integers(inputs, "steps")
    if crashes is None:
        yield Finding("", "What was loaded does not belong to what the saves did to the files.")
        return
    for each in crashes:
        num_saved = integer(each, "saved")
        if not 0 <= num_saved <= len(steps):
            yield Finding("", f"{num_saved} saves are said to have returned, of {len(steps)}.")
            return
        newest = num_saved - 1 - bool(each["cut"])
        allowed = [newest] if each["between"] else [newest, newest + 1]
        problem = _problem(case, each["loaded"], allowed)
        if problem:
            wanted, came = problem
            yield Finding(_named(case, each, crashes), f"{_story(steps, each)} {came}", wanted)
        elif not _is_left(case, each):
            text = (
                f"{_story(steps, each)} Step {_step_of(each['loaded'])} came back, and no file that is left holds it."
            )
            yield Finding("", text)
        if problem := _problem(case, each.get("stub"), allowed) if "stub" in each else None:
            text = f"After step {steps[num_saved - 1]} was saved, its file was cut to {STUB} bytes."
            name = _DAMAGED if _raised(each["stub"]) and not _is_pythons_own(each["stub"]) else ""
            yield Finding(name, f"{text} {problem[1]}", problem[0])
        if each["between"] and num_saved and not each["cut"]:
            yield from _with_at_most(case, each, num_saved - 1)
        if num_saved < len(steps) and (problem := _problem(case, each.get("again"), [num_saved])):
            text = f"{_story(steps, each)} Started again, it saved step {steps[num_saved]}. {problem[1]}"
            known, came = steps[: num_saved + 1], _step_of(each.get("again"))
            name = _NO_PAIR if _is_no_pair(each.get("again")) else ""
            name = name if name or _is_pythons_own(each.get("again")) or not isinstance(came, int | None) else (
                _AGAIN if _raised(each.get("again")) else _SORT if _reads_as_words(known, came)
                else _of_steps(known, came) if came is not None
                else _none_found(integer(each, "files_again"), steps[num_saved], crashes)
            )  # fmt: skip
            yield Finding(name, text, problem[0])
        if not each["between"] and num_saved < len(steps) and not 1 <= integer(each, "files_later") <= 2:
            later, files = steps[num_saved] + 1, integer(each, "files_later")
            text = f"{_story(steps, each)} Step {later} was saved next, and {files} files are in the folder then"
            yield Finding(_KEEPS, f"{text}, expected at most 2.", "2", str(files))
    most = max((integer(each, "files") for each in crashes if each["between"] and each["how"] == "kill"), default=0)
    if most > 2:
        again = " that was broken off and made again" if inputs["restart"] else ""
        yield Finding(
            _KEEPS, f"After a save{again}, {most} files are in the folder, expected at most 2.", "2", str(most)
        )


def _with_at_most(case: Case, each: dict[str, Value], newest: int) -> Iterator[Finding]:
    """Yield what is wrong with loads that are given at_most: the newest step, and one less."""
    step = integers(case.inputs[0], "steps")[newest]
    text = f"After the save of step {step} returned, at_most={{}}:"
    if problem := _problem(case, each.get("up_to_it"), [newest]):
        name = "" if _is_pythons_own(each.get("up_to_it")) else _STRICT
        yield Finding(name, f"{text.format(step)} {problem[1]}", problem[0])
    if problem := _problem(case, each.get("older"), [newest - 1]):
        came = _step_of(each.get("older"))
        name = _AT_MOST if type(came) is not int or came >= step else _SORT
        if came is None:
            name = _PASSED if integer(each, "files") > 1 else _ONE
        if _is_pythons_own(each.get("older")):
            name = ""
        yield Finding(name, f"{text.format(step - 1)} {problem[1]}", problem[0])


def _problem(case: Case, loaded: Value, allowed: list[int]) -> tuple[str, str] | None:
    """Return what should have come and a sentence on what came, None where it is right."""
    steps, values = integers(case.inputs[0], "steps"), listed(case.inputs[0], "values")
    good = {steps[number] if number >= 0 else None: number for number in allowed if number < len(steps)}
    wanted = " or ".join("None" if step is None else f"step {step}" for step in good)
    if _is_no_pair(loaded):
        return wanted, f"{_raised(loaded)}, expected None or a pair (step, state)."
    if isinstance(loaded, dict) and "raised" in loaded:
        return wanted, f"load_checkpoint or save_checkpoint raised {loaded['raised']}."
    if not isinstance(loaded, dict) or "step" not in loaded:
        return wanted, "Nothing was loaded."
    step = loaded["step"]
    if (step is not None and type(step) is not int) or step not in good:
        shown = (
            "None" if step is None else f"step {step!r}" + ("" if type(step) is int else f" ({type(step).__name__})")
        )
        return wanted, f"load_checkpoint gave {shown}, expected {wanted}."
    if step is None:
        return None
    value, came = values[good[step]], loaded.get("weight")
    if not isinstance(came, torch.Tensor) or came.shape != value.shape or loaded.get("inside") != step:
        return wanted, f"load_checkpoint gave step {step} with a state that was never saved."
    wrong = difference(came, value, torch.zeros(300, dtype=torch.float64))
    return (wanted, f"Step {step} came with the weights of another one.") if wrong is not None else None


def _is_left(case: Case, each: dict[str, Any]) -> bool:
    """Return whether the files that are left hold what was loaded: what comes from elsewhere was not saved.

    Where no file of the case ever holds weights as they lie in memory, they are written in some other form: then all
    files together have as many bytes that are not 0 as weights need.
    """
    value = each["loaded"].get("weight") if isinstance(each["loaded"], dict) else None
    if value is None or is_in(each["left"], value):
        return True
    told = b"".join(data for data in each["left"].values() if data)
    return not each["raw"] and len(told) - told.count(0) >= LEAST_OF_WEIGHTS * value.nbytes


def _step_of(loaded: Value) -> Any:
    return loaded.get("step") if isinstance(loaded, dict) else None


def _raised(loaded: Value) -> str:
    """Return the words of what a load raised, "" for nothing."""
    return str(loaded.get("raised", "")) if isinstance(loaded, dict) else ""


def _is_no_pair(loaded: Value) -> bool:
    return _raised(loaded).startswith("load_checkpoint returned ")


def _is_pythons_own(loaded: Value) -> bool:
    """Return whether a save or a load raised an error that says what is wrong itself."""
    return _raised(loaded).startswith(("TypeError", "AttributeError", "NameError", "UnboundLocalError", "KeyError"))


def _story(steps: list[int], each: dict[str, Value]) -> str:
    saved = integer(each, "saved")
    if each["cut"]:
        return f"After step {steps[saved - 1]} was saved, its file was cut short or emptied."
    how = HOW.get(str(each["how"]), "")
    if str(each["what"]).startswith("killed"):
        return f"The save of step {steps[-1]} was {each['what']}; it was made again and returned. Then {how}."
    if each["between"]:
        return f"After the save of step {steps[saved - 1]} returned, {how}." if saved else f"Before any save, {how}."
    return f"While step {steps[min(saved, len(steps) - 1)]} was saved, {each['what']}, {how}."


def _none_found(num_files: int, step: int | None, crashes: list[dict[str, Any]]) -> str:
    """Return the mistake of a load that finds nothing after a step was saved, by how many files are in the folder."""
    finds_others = any(_step_of(each["loaded"]) for each in crashes)
    return _EMPTY if not num_files else _ZERO if step == 0 and finds_others else _NOT_FOUND


def _named(case: Case, each: dict[str, Value], crashes: list[dict[str, Value]]) -> str:
    """Return the mistake that leaves this behind."""
    loaded, how = each["loaded"], str(each["how"])
    steps, saved = integers(case.inputs[0], "steps"), integer(each, "saved")
    step = _step_of(loaded)
    if _is_no_pair(loaded):
        return _NO_PAIR
    renames = any(crash["renamed"] for crash in crashes)
    if not saved and not integer(each, "files") and _raised(loaded) and not _is_pythons_own(loaded):
        return _RAISES
    if "invalid literal for int" in str(_raised(loaded)):
        return _LEFTOVER
    if not isinstance(step, int | None) or (_is_pythons_own(loaded) and not each["cut"]):
        return ""
    if each["cut"]:
        return _DAMAGED if _raised(loaded) else _GIVES_UP if integer(each, "files") > 1 and step is None else _ONE
    if how == "kill" and each["between"]:
        if step is None and not _raised(loaded):
            return _none_found(integer(each, "files"), steps[saved - 1] if saved else None, crashes)
        return _SORT if _reads_as_words(steps[:saved], step) else _of_steps(steps, step)
    if how == "kill":
        return _DELETES if not _raised(loaded) and step is None else _IN_PLACE
    if how == "torn" or (how == "names" and _raised(loaded)):
        return _EARLY if renames else _IN_PLACE
    if each["between"] and how == "nothing" and _is_safe(case, crashes, saved):
        return _FOLDER
    return _FLUSH if each["between"] else _DELETES


def _is_safe(case: Case, crashes: list[dict[str, Value]], saved: int) -> bool:
    """Return whether, after as many saves, the contents are there when names are."""
    return not any(
        _problem(case, each["loaded"], [saved - 1]) for each in crashes
        if each["between"] and each["saved"] == saved and each["how"] in ("names", "torn") and not each["cut"]
    )  # fmt: skip


def _of_steps(steps: list[int], step: int | None) -> str:
    """Return the mistake of a load that gives another step than the newest: an older one, or one that never was."""
    return _OLDEST if step is None or step in steps else _NEVER_SAVED


def _reads_as_words(steps: list[int], step: Value) -> bool:
    return bool(steps and str(step) == max(map(str, steps)) and step != max(steps))


(
    _EARLY, _FLUSH, _FOLDER, _IN_PLACE, _ONE, _SORT, _OLDEST, _DAMAGED, _DELETES, _AGAIN, _KEEPS, _AT_MOST, _STRICT,
    _GIVES_UP, _LEFTOVER, _PASSED, _NOT_FOUND, _EMPTY,
) = (
    "renamed too early", "not flushed to the disk", "the folder not flushed", "written in place",
    "one file for all", "names that sort like words", "the oldest", "a damaged file ends it",
    "the last good one deleted first", "a crash in mid-checkpoint for ever", "old ones are left",
    "at_most ignored", "at_most itself left out", "gives up at a damaged file", "a leftover taken for a checkpoint",
    "gives up at a later step", "not found again", "nothing is left",
)  # fmt: skip
_NO_PAIR, _NEVER_SAVED, _ZERO, _RAISES = (
    "not a pair of step and state", "a step that was never saved", "step 0 taken for none", "an error for none",
)  # fmt: skip

EXERCISE = declared(
    id="checkpoints",
    functions=("save_checkpoint", "load_checkpoint"),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(find,),
    visible=(
        checkpoint_case("three saves, from step 0 on", 121, [0, 1, 2]),
        checkpoint_case("steps 9, 10 and 100", 122, [9, 10, 100]),
        checkpoint_case("the newest is cut off", 125, [999_999, 1_000_000], 60),
        checkpoint_case("killed in a save, and started again", 127, [5, 6], restart=True),
        checkpoint_case("the newest is empty", 126, [7, 8, 9], 0),
    ),
    distributed=False,
    seconds=90.0,
    hints=(
        "At which moment is neither the old nor the new checkpoint complete? Under which name may a file stand that is "
        "not complete yet? And when may an old one go?",
        "A file for each step, its number padded with zeros so that names sort like numbers. Write it under another "
        "name, sync it, rename it, sync the folder, and only then delete what is older. Loading: newest first, and on "
        "an error the next one.",
        'with unfinished.open("wb") as file: torch.save(state, file); file.flush(); os.fsync(file.fileno()). Then '
        'unfinished.replace(folder / f"{step:012}.pt") and sync(folder). for old in '
        'sorted(folder.glob("*.pt"))[:-2]: old.unlink(). Loading: for path in sorted(folder.glob("*.pt"), '
        "reverse=True): try: torch.load(path)",
    ),
    mistakes=(
        Mistake(_EARLY,
                "The new name stands over contents that did not all reach the disk, and torch.load reads zeros there "
                "without a word. A sync of the folder brings names alone: os.fsync(file.fileno()) of the *file*, and "
                "only then the rename."),
        Mistake(_FLUSH,
                "save_checkpoint returned, the power failed, and the data had not reached the disk: file.flush(), "
                "then os.fsync(file.fileno()), while the file is open."),
        Mistake(_FOLDER,
                "The rename itself was lost: a name reaches the disk when its folder is synced, after the rename. Also "
                "where a crash left the name already."),
        Mistake(_IN_PLACE,
                "The file has its final name before all of it is on the disk, and torch.load reads zeros there "
                "without a word. Write under another name, sync, then rename."),
        Mistake(_ONE, "There was no older checkpoint to go back to. Give each step its own file, keep two, and delete "
                "only after the new one is there."),
        Mistake(_SORT, "Sorted as text, 10 comes before 9. Pad the number with zeros, or sort by int(...)."),
        Mistake(_NEVER_SAVED,
                "The step that came back was never saved: return the number that save_checkpoint put into the name, "
                "as it is."),
        Mistake(_OLDEST, "An older checkpoint was loaded; load the newest one that is whole. Is it still there, or did "
                "save_checkpoint delete the newest ones in place of the oldest?"),
        Mistake(_DAMAGED,
                "A damaged file raised an error in load_checkpoint. Which one depends on where it ends: catch "
                "EOFError, RuntimeError and pickle.UnpicklingError, and try the one before."),
        Mistake(_DELETES,
                "The old checkpoint was gone before the new one was safe on the disk. Delete last, after the folder "
                "is synced."),
        Mistake(_NO_PAIR, "load_checkpoint returns None, or the step and the state, in this order."),
        Mistake(_ZERO, "Step 0 is a step: where load_checkpoint asks whether there is one, compare with None."),
        Mistake(_RAISES, "Where there is no checkpoint that can be read, load_checkpoint returns None: a new run "
                "begins with that."),
        Mistake(_AGAIN,
                "What the crash left is in the way, and so every restart fails at the same place. Expect leftovers: "
                "overwrite them, or remove them first."),
        Mistake(_KEEPS, "Delete all but the newest two, when the new one is safe. What a crash left unfinished "
                "counts, too: overwrite it, or remove it."),
        Mistake(_AT_MOST, "With at_most, later steps are not looked at, also where at_most is 0."),
        Mistake(_STRICT, "The step at_most itself may be loaded: leave out only those that are greater."),
        Mistake(_PASSED, "The newest file is of a later step than at_most, and load_checkpoint gave up. Pass it over, "
                "and look at the one before."),
        Mistake(_NOT_FOUND, "The save returned and there is a file in the folder, and load_checkpoint finds none. Does "
                "it look for the names that save_checkpoint gives in the end?"),
        Mistake(_EMPTY, "The save returned, and the folder is empty: was it written elsewhere, or deleted at once?"),
        Mistake(_GIVES_UP, "The newest file is damaged, and load_checkpoint gave up. Try the one before."),
        Mistake(_LEFTOVER, "What a crash left unfinished is in the folder, too, and its name is no step. Look only at "
                "the names of finished checkpoints."),
    ),
)  # fmt: skip
