"""What an audit computes that a change would save, held against that change made in the bank's programs."""

from __future__ import annotations

from pathlib import Path

import pytest

import labkit
from labkit.virtual_world import VirtualWorld
from tests.audit.bank import Program, bugs

SAVES = {
    "waited_for_at_once": ("waits-at-once", 1.0),
    "barrier_in_every_step": ("barrier-each-step", 1.0),
    "item_in_every_step": ("reads-each-step", 1.0),
    "tensor_parallel_across_nodes": ("busy-axis-between-nodes", 1.0),
    "synchronised_in_accumulation": ("synchronised-each-microbatch", 0.94),
    "backward_alone_in_no_sync": ("synchronised-each-microbatch", 0.91),
    "reduced_one_by_one": ("many-small-messages", 1.13),
    "rank_0_evaluates_alone": ("one-rank-is-late", 1.23),
    "objects_in_every_step": ("objects-each-step", 0.65),
}
"""Program -> the rule, and which share of the change's own saving is computed."""
QUICK = "waited_for_at_once"


@pytest.mark.in_turn
@pytest.mark.filterwarnings("ignore")  # programs are as their users wrote them
@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one == QUICK else pytest.mark.long) for one in SAVES])
def test_a_saving_is_that_of_the_change_itself(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (bug,) = [one for one in bugs() if one.name == name]
    rule, share = SAVES[name]
    found = labkit.audit(_written(bug, bug.path.read_text()), on=_world(bug), what_if=True)
    (one,) = [one for one in found.findings if one.rule == rule]
    changed = labkit.run(labkit.script(_written(bug, bug.twin)), on=_world(bug), echo=False).timeline
    assert changed is not None
    saves = one.evidence["takes_ns_in_all"] - changed.makespan_ns
    assert one.evidence["saves_ns"] / saves == pytest.approx(share, abs=0.05)


def _world(bug: Program) -> VirtualWorld:
    return labkit.virtual(bug.world, **bug.hardware)


def _written(bug: Program, source: str) -> Path:
    path = Path(bug.path.name)
    path.write_text(source)
    return path
