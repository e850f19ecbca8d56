"""The bank of bugs holds what it says: both programs run, and the wrong one's outcome is as declared."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

import labkit
from labkit.errors import RunError
from labkit.failures import Pause
from labkit.timeline.memory import peak_memory_bytes
from tests.audit.bank import EFFECTS, Program, bugs, right

BUGS, RIGHT = bugs(), right()
QUICK = ("gradients_summed", "optimizer_before_sharding")


def _cases(programs: list[Program]) -> list[object]:
    return [pytest.param(p, id=p.name, marks=() if p.name in QUICK else pytest.mark.long) for p in programs]


def _run(program: Program, source: str, folder: Path, *args: object, late: tuple[Pause, ...] = ()) -> labkit.Run:
    folder.mkdir(exist_ok=True)
    path = folder / program.path.name
    path.write_text(source)
    world = labkit.virtual(program.world, **program.hardware, failures=list(late) or None)
    return labkit.run(labkit.script(path, *args), on=world, echo=False, timeout=60)


def _printed(program: Program, source: str, folder: Path, *args: object) -> list[str]:
    return _run(program, source, folder, *args).output


def test_every_program_says_what_is_wrong_and_marks_the_place() -> None:
    assert len(BUGS) >= 70
    for bug in BUGS:
        assert bug.fields["Kind"] == ("slow" if bug.fields["Effect"] in ("slower", "memory") else "wrong"), bug.name
        assert bug.fields["Effect"] in EFFECTS and bug.places and bug.num_changed and bug.words, bug.name
        compile(bug.twin, bug.name, "exec")
    for program in RIGHT:
        assert not program.num_changed and not program.places, program.name


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore")  # programs are as their users wrote them
@pytest.mark.parametrize("bug", _cases(BUGS))
def test_a_bug_shows_as_declared_and_its_twin_does_not(
    bug: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, twin = bug.path.read_text(), bug.twin
    effect = bug.fields["Effect"]
    monkeypatch.chdir(tmp_path)
    if effect == "resume":
        for source, differs in ((wrong, True), (twin, False)):
            ended = []
            for stops in ([4], [2, 4]):
                own = tmp_path / f"{differs}{stops}"
                own.mkdir()
                monkeypatch.chdir(own)
                ended.append([_printed(bug, source, tmp_path, "--steps", stop) for stop in stops][-1])
            assert (ended[0] != ended[1]) is differs
        return
    if effect == "late":
        assert [_ends_as_if_nobody_were_late(bug, source, tmp_path) for source in (wrong, twin)] == [False, True]
        return
    first, second = _run(bug, wrong, tmp_path), _run(bug, twin, tmp_path)
    if effect == "replicas":
        assert len(set(first.output)) > 1 and len(set(second.output)) == 1
    elif effect == "outcome":
        assert first.output != second.output
    else:
        assert first.timeline is not None and second.timeline is not None
        if effect == "slower":
            assert first.timeline.makespan_ns > second.timeline.makespan_ns
        else:
            assert peak_memory_bytes(first.timeline) > peak_memory_bytes(second.timeline)


def _ends_as_if_nobody_were_late(bug: Program, source: str, folder: Path) -> bool:
    begins = set(folder.iterdir())
    whole = _run(bug, source, folder).output
    for one in set(folder.iterdir()) - begins - {folder / bug.path.name}:
        one.unlink()  # what it wrote is not there for a run with a late rank
    ranks = range(bug.world)
    at_calls = [Pause(rank, times=99, call=1) for rank in ranks]
    alone = [(pause,) for pause in (*at_calls, *(Pause(rank, times=99, step=1) for rank in ranks))]
    try:
        for late in (*alone, *combinations(at_calls, 2)):
            ended = _run(bug, source, folder, late=late).output
            for one in set(folder.iterdir()) - begins - {folder / bug.path.name}:
                one.unlink()
            if ended != whole:
                return False
    except RunError:
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("program", [pytest.param(p, id=p.name) for p in RIGHT])
def test_a_right_program_runs(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert any(_printed(program, program.path.read_text(), tmp_path))
