"""Findings on programs that were not written for the audit: each was judged by hand, and none of these is false."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import labkit
from labkit.errors import LabkitError
from labkit.virtual_world import VirtualWorld
from tests.checks.lesson_cells import lesson, run_cell

TESTS = Path(__file__).parents[1]
READS = "it reads its loss in every step"
SUMS = "gradients are added up and never divided; what the crash tests hold does not hang on it"
PROGRAMS: dict[str, tuple[tuple[object, ...], int, dict[str, str]]] = {
    "scripts/programs/multi_gpu.py": ((2, 1, "--snapshot", "a.pt"), 2, {"reads-each-step": READS}),
    "scripts/programs/gpt/train.py": (("--out_dir=.",), 2, {"reads-each-step": READS}),
    "scripts/programs/three_axes/train.py": ((), 8, {"many-small-messages": "a stage's gradients go one by one"}),
    "scripts/programs/sharded.py": ((), 4, {"reads-each-step": READS}),
    "scripts/programs/foreign/with_accelerate.py": ((".",), 2, {"reads-each-step": READS}),
    "scripts/programs/foreign/with_lightning.py": ((".",), 2, {"reads-each-step": READS}),
    "failures/programs/trainer.py": ((), 2, {"gradient-wrong-scale": SUMS}),
    "failures/programs/gpt_saves.py": (
        ("in_place",), 2, {"gradient-wrong-scale": SUMS, "many-small-messages": "gradients go one by one"},
    ),
    "failures/programs/accelerate_saves.py": ((), 2, {}),
    "failures/programs/lightning_saves.py": (
        ("steps",), 2, {"barrier-each-step": "Lightning's trainer meets around what it saves"},
    ),
}  # fmt: skip
"""Program -> its arguments, on how many ranks, and each rule that it breaks with the reason why that is true."""
LESSONS: dict[str, dict[str, str]] = {
    "01": {}, "02": {"changes_it_too_early": "changed-in-flight"}, "03": {}, "06": {}, "07": {}, "10": {}, "11": {},
    "16": {"watched": "gradient-wrong-scale, dropout-masks-equal"},
}  # fmt: skip
"""Lesson -> functions that it runs on virtual ranks and the rules that they break: each finding is true."""
LIBRARIES = {
    "with_accelerate": "accelerate", "with_lightning": "pytorch_lightning", "accelerate_saves": "accelerate",
    "lightning_saves": "pytorch_lightning",
}  # fmt: skip
TELLS = ("check", "predict", "reveal", "answer", "challenge", "hint", "figure")
QUICK = "failures/programs/trainer.py"


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore")  # programs are as their users wrote them
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one == QUICK else pytest.mark.long) for one in PROGRAMS]
)
def test_findings_on_a_program_are_those_that_were_judged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library := LIBRARIES.get(Path(name).stem):
        pytest.importorskip(library, reason=f"{library} is not installed: pip install -e '.[foreign]'")
    monkeypatch.chdir(tmp_path)
    args, size, judged = PROGRAMS[name]
    found = labkit.audit(labkit.script(TESTS / name, *args), on=labkit.virtual(size))
    assert {one.rule for one in found.findings} == set(judged), found


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", LESSONS)
def test_findings_on_a_lessons_runs_are_those_that_were_judged(
    number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found: dict[str, str] = {}
    real = labkit.run

    def audited(fn: Callable[..., object], *args: object, on: Any = None, **kwargs: Any) -> labkit.Run:
        if isinstance(on, VirtualWorld):
            found.update(_findings(fn, args, on))
        return real(fn, *args, on=on, **kwargs)

    monkeypatch.setattr(labkit, "run", audited)
    for name in TELLS:
        monkeypatch.setattr(labkit, name, lambda *_, **__: None)
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in lesson(number).cells:
        if cell.kind == "code" and cell.role not in ("check", "find", "why") and not cell.source.startswith("%"):
            run_cell(cell.source, names)
    assert found == LESSONS[number]


def _findings(fn: Callable[..., object], args: tuple[object, ...], world: VirtualWorld) -> dict[str, str]:
    """Return what an audit says of a run; nothing where the lesson shows how it fails."""
    try:
        audit = labkit.audit(fn, *args, on=world)
    except LabkitError:
        return {}
    return {getattr(fn, "__name__", repr(fn)): ", ".join(one.rule for one in audit.findings) for _ in audit.findings}
