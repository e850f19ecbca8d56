"""Checkpoints: after whatever breaks off or is damaged, the newest that is whole comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Value, Values
from labkit.checks.compare import difference
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import OneOf
from labkit.checks.values import listed, records
from labkit.checks.wire import Wire
from labkit.exercises.keys_rows_failures.checkpoints.driver import drive
from labkit.exercises.remote_calls.drawn import drawer


def checkpoint_case(name: str, seed: int, said: str, *, opposite: bool = False) -> Case:
    """Return a case of checkpoints.

    Args:
        name: In words.
        seed: Draws the weights.
        said: "s7" saves version 7, "p7" does and then the power fails, "w8" and "r9" break off while writing and
            while renaming, "d40" leaves 40 bytes of what was saved last.
        opposite: Another rank is the disk, which gets what is flushed and loads from that.
    """
    draw = drawer(draws.part_of(seed, "rank", 0) if opposite else seed, 5)
    script: list[Value] = []
    kinds = {"s": "save", "p": "pull", "w": "write", "r": "rename"}
    for word in said.split():
        if word[0] == "d":
            script.append({"op": "damage", "bytes": int(word[1:])})
        else:
            script.append({"op": kinds[word[0]], "version": int(word[1:]), "weight": draw()})
    if not opposite:
        return Case(name, 1, ({"script": script},), {"said": said})
    return Case(name, 2, ({"script": script, "opposite": True}, {"steps": len(script)}), {"said": said})


def _loads(case: Case, broke_off: list[bool]) -> list[tuple[int, Tensor] | None]:
    """Return what must be loaded after each step; a save that was to break off and did not has saved."""
    whole: dict[int, Tensor] = {}
    last: int | None = None
    found: list[tuple[int, Tensor] | None] = []
    for step, broken in zip(listed(case.inputs[0], "script"), broke_off, strict=True):
        if step["op"] == "damage":
            whole.pop(cast(int, last), None)
        elif not broken:
            whole[step["version"]], last = step["weight"], step["version"]
        found.append((max(whole), whole[max(whole)]) if whole else None)
    return found


def expected(case: Case) -> list[Values]:
    """Return what must be loaded after each step, if all breaks off as it should (the oracle)."""
    script = listed(case.inputs[0], "script")
    loads: list[Value] = []
    for each in _loads(case, [step["op"] in ("write", "rename") for step in script]):
        loads.append({"version": None, "weight": None} if each is None else {"version": each[0], "weight": each[1]})
    return [{"loads": loads}] * case.world_size


def structure(case: Case) -> list[Any]:
    """Return what comes after each step: what was loaded, if anything, and what became of the saving."""
    script = listed(case.inputs[0], "script")
    weight = next(step["weight"] for step in script if "weight" in step)
    load = {"version": OneOf((int, None)), "weight": OneOf((weight, None))}
    here = {"loads": [{**load, "broke_off": bool, "lost": str}] * len(script)}
    return [here, *[{"loads": [load] * len(script)}] * (case.world_size - 1)]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield data that never reached the disk, and the first step after which another checkpoint came than must."""
    came, words = records(got[0], "loads"), str(case.about["said"]).split()
    right = _loads(case, [bool(each["broke_off"]) for each in came])
    lost = next((str(each["lost"]) for each in came if each["lost"]), "")
    for number, (mine, wanted) in enumerate(zip(came, right, strict=True)):
        if case.world_size > 1:  # what the disk has counts
            mine = records(got[1], "loads")[number]
        story = f"After {_story(words[: number + 1])}:"
        version = None if wanted is None else wanted[0]
        if mine["version"] != version:
            shown, good = (f"version {each}" if each is not None else "None" for each in (mine["version"], version))
            name = lost or _named(words, cast("int | None", mine["version"]), version)
            yield Finding(name, f"{story} load_checkpoint gave {shown}, expected {good}.", good, shown)
        elif wanted is not None:
            wrong = difference(mine["weight"], wanted[1], torch.zeros(5, dtype=torch.float64))
            if wrong is not None:
                yield Finding(lost, f"{story} the weights hold {wrong.got} where {wrong.expected} should be.")


def _named(words: list[str], came: int | None, right: int | None) -> str:
    if came is None:
        return "written over the old one" if "w3" in words and "s3" in words else "one file for all"
    if right is None or came > right:
        return "an incomplete file is taken for whole"
    return "names that sort like words" if came == 9 else "the oldest"


def _story(words: list[str]) -> str:
    kinds = {
        "s": "version {} was saved",
        "p": "version {} was saved and the power failed",
        "w": "saving version {} broke off while writing",
        "r": "saving version {} broke off before renaming",
        "d": "the last file was cut to {} bytes",
    }
    return ", ".join(kinds[word[0]].format(word[1:]) for word in words)


EXERCISE = declared(
    id="checkpoints",
    functions=("save_checkpoint", "load_checkpoint"),
    driver=drive,
    oracle=expected,
    structure=structure,
    looks=(find,),
    visible=(
        checkpoint_case("two checkpoints", 121, "s1 s2"),
        checkpoint_case("versions 9, 10 and 100", 122, "s9 s10 s100"),
        checkpoint_case("the first one breaks off", 123, "w1 r2 s3"),
        checkpoint_case("one breaks off while it is written, one before it is renamed", 124, "s5 w6 s7 r8 s9"),
        checkpoint_case("a version saved again breaks off", 126, "s3 w3 r3 s4"),
        checkpoint_case("the newest is cut off, and empty", 125, "s3 s4 d60 s5 d0"),
        checkpoint_case("the power fails", 127, "p1 s2 p3 p3"),
    ),
    distributed=False,
    hints=(
        "At which moment is neither the old nor the new checkpoint complete? Can you avoid that moment?",
        "A file for each version, its number padded with zeros so that names sort like numbers. torch.save to another "
        "name, then rename it, Path.replace. Loading: newest first, and on an error the next one.",
        'with unfinished.open("wb") as file: torch.save({"version": version, "weight": weight}, file); file.flush(); '
        "os.fsync(file.fileno()). Then unfinished.replace(folder / "
        'f"{version:012}.checkpoint"), and os.fsync of the folder. Loading: for path in '
        'sorted(folder.glob("*.checkpoint"), reverse=True): try: torch.load(path, weights_only=True)',
    ),
    mistakes=(
        Mistake("renamed too early",
                "The power may fail right after the rename, and then the new name stands over data that never "
                "reached the disk: os.fsync the file first, then rename it."),
        Mistake("not flushed to the disk",
                "save_checkpoint returned, the power failed, and the data had not reached the disk: file.flush(), "
                "then os.fsync(file.fileno())."),
        Mistake("the folder not flushed",
                "The rename itself was lost: a name reaches the disk when its folder is flushed, "
                "os.fsync(os.open(folder, os.O_RDONLY)), after the rename."),
        Mistake("written over the old one",
                "The version existed and was complete; saving it again destroyed it before the new file was written. "
                "Write under another name, then rename."),
        Mistake("one file for all",
                "The old checkpoint was gone before the new one was complete. Give each version its own file."),
        Mistake("names that sort like words",
                "Sorted as text, 10 comes before 9. Pad the number with zeros, or sort by int(...)."),
        Mistake("the oldest", "An older checkpoint was loaded; load the newest complete one."),
        Mistake("an incomplete file is taken for whole", "An incomplete checkpoint was loaded as if it were complete."),
        Mistake("a damaged file ends it",
                "A damaged file raised an error in load_checkpoint: catch it, and try the one before.",
                seen=lambda case, got, wire: isinstance(got, Failure) and got.kind == "exception", certain=True),
    ),
)  # fmt: skip
