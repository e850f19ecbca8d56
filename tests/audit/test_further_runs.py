"""What further runs say: one process, and a run that was stopped and resumed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import labkit
from labkit.auditing.auditing import Audit
from labkit.errors import RunError
from labkit.failures import Pause
from tests.audit.programs import train

TWO = labkit.virtual(2)
PARTS, APART = "parts-from-one-process", "resumed-apart"


def sequence(mistake: str = "") -> None:
    """Train two steps on a sequence that the ranks share."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    tokens = torch.randint(0, 8, (2, 16))
    word, place, head = nn.Embedding(8, 4), nn.Embedding(16, 4), nn.Linear(4, 8)
    parameters = [*word.parameters(), *place.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    part = 16 // size
    for step in range(2):
        mine = tokens[step].chunk(size)[rank]
        places = torch.arange(part) + (0 if mistake == "places" else rank * part)
        logits = head(word(mine) + place(places))
        targets = mine.flip(0) if size > 1 and mistake == "targets" else mine
        loss = functional.cross_entropy(logits, targets, reduction="sum") / 16
        optimizer.zero_grad()
        loss.backward()
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
        optimizer.step()


SCRIPT = """
import sys
from pathlib import Path
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
inputs = torch.randn(8, 2, 3, 4)
first = 0
if Path("saved.pt").exists():
    state = torch.load("saved.pt")
    model.load_state_dict(state["model"])
    if "optimizer" in state:
        optimizer.load_state_dict(state["optimizer"])
    first = state["step"]
for step in range(first, int(sys.argv[1])):
    model(inputs[step, dist.get_rank()]).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
    optimizer.zero_grad()
    state = {"model": model.state_dict(), "step": step + 1}
    if "whole" in sys.argv:
        state["optimizer"] = optimizer.state_dict()
    if step == 1 and not dist.get_rank():
        torch.save(state, "saved.pt")
dist.barrier()
"""


def _rules(found: Audit) -> list[str]:
    return [one.rule for one in found.findings if one.severity != "slow"]


@pytest.mark.in_turn
@pytest.mark.parametrize(("mistake", "kind"), [("places", "input"), ("targets", "target")])
def test_values_that_part_from_one_process_are_named_by_module_rank_and_step(mistake: str, kind: str) -> None:
    found = labkit.audit(sequence, mistake, on=TWO, against=1)
    assert _rules(found) == [PARTS], found
    one = found.findings[0]
    assert (one.step, one.evidence["kind"]) == (0, kind)
    assert one.evidence["differs_by"] > one.evidence["rounding_explains"] > -1
    assert one.file.endswith("test_further_runs.py")
    if mistake == "places":
        line = Path(one.file).read_text().splitlines()[one.line - 1]
        assert (one.rank, one.tensor) == (1, "Embedding 2")
        assert line.strip().startswith("places =")


@pytest.mark.in_turn
def test_what_agrees_up_to_rounding_holds() -> None:
    found = labkit.audit(sequence, on=TWO, against=1)
    assert PARTS in found.held and not _rules(found), found


@pytest.mark.in_turn
def test_another_function_can_be_the_reference() -> None:
    assert _rules(labkit.audit(lambda: sequence("places"), on=TWO, reference=sequence)) == [PARTS]


def attends() -> None:
    """Train two steps of a model whose attention drops nothing."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layer, rows = nn.Linear(4, 4), torch.randn(2, 8, 2, 4)

    def attention(module: nn.Module, given: object, out: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(out, out, out, dropout_p=0.0)

    layer.register_forward_hook(attention)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(2):
        layer(rows[step].chunk(size)[rank]).square().mean().backward()
        for parameter in layer.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.in_turn
def test_attention_without_dropout_draws_nothing_and_can_be_compared() -> None:
    found = labkit.audit(attends, on=TWO, against=1)
    assert PARTS in found.held and not _rules(found), found


def has_no_values() -> None:
    """Train two steps of a model without values."""
    with torch.device("meta"):
        layer, rows, targets = nn.Linear(4, 3), torch.zeros(8, 4), torch.zeros(8, dtype=torch.long)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(2):
        functional.cross_entropy(layer(rows), targets).backward()
        optimizer.step()


@pytest.mark.in_turn
def test_a_run_without_values_is_audited_too() -> None:
    found = labkit.audit(has_no_values, on=labkit.virtual(1), against=1)
    assert found.num_steps == 2 and not found.findings


def test_a_run_that_one_process_cannot_repeat_is_not_judged() -> None:
    found = labkit.audit(train, on=TWO, against=1)
    assert found.not_looked_at[PARTS].startswith("on one process it fails")
    assert not _rules(found)


@pytest.mark.in_turn
@pytest.mark.parametrize("whole", [False, True], ids=["without the optimizer", "whole"])
def test_a_resumed_run_is_held_against_one_that_was_not_stopped(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    found = labkit.audit(path, 4, *["whole"] * whole, on=TWO, resume=True)
    if whole:
        assert APART in found.held and not _rules(found), found
        return
    assert _rules(found) == [APART], found
    one = found.findings[0]
    assert (one.step, one.line, one.evidence["kind"]) == (2, 13, "state")


def test_a_rule_without_an_occasion_is_not_said_to_hold() -> None:
    found = labkit.audit(train, on=TWO, steps=1)
    assert found.not_looked_at["epochs-alike"] == "no second epoch began in these steps"
    assert "epochs-alike" not in found.held


def collect(by_sender: bool = False) -> None:
    """Give rank 0 a number from each rank, and all ranks the list that it makes of them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank:
        dist.send(torch.tensor([float(rank)]), 0)
        found = torch.empty(size)
    else:
        found = torch.zeros(size)
        for place in range(1, size):
            came = torch.empty(1)
            sender = dist.recv(came)
            found[sender if by_sender else place] = came[0]
    dist.broadcast(found, 0)


def stop(told: bool = False) -> None:
    """End in the third step, where rank 0 leaves a file; each rank looks for it when it comes by."""
    for step in range(5):
        dist.all_reduce(torch.ones(4))
        if step == 2 and not dist.get_rank():
            Path("stop").touch()
        if told:
            dist.barrier()
        if Path("stop").exists():
            break


@pytest.mark.in_turn
@pytest.mark.parametrize(("fn", "rule"), [(collect, "ends-otherwise-when-late"), (stop, "fails-when-late")])
def test_what_hangs_on_who_is_late_is_found_with_one_delay_that_shows_it(
    fn: Callable[..., None], rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = labkit.audit(fn, on=labkit.virtual(3), late=True)
    assert [one.rule for one in found.findings] == [rule], found
    one = found.findings[0]
    line = Path(one.file).read_text().splitlines()[one.line - 1].strip()
    assert line in ("sender = dist.recv(came)", 'if Path("stop").exists():')
    (again,) = re.findall(r"failures=\[Pause\((\d), seconds=([\d.e-]+), call=(\d)\)\]", one.advice)
    pause = Pause(int(again[0]), float(again[1]), call=int(again[2]))
    if fn is stop:  # what the finding says can be repeated
        with pytest.raises(RunError):
            labkit.run(fn, on=labkit.virtual(3, failures=[pause]), echo=False)
    (tmp_path / "stop").unlink(missing_ok=True)
    assert not labkit.audit(fn, True, on=labkit.virtual(3), late=True).findings


def meet(barrier: bool) -> None:
    """Take four steps, with or without a barrier before each."""
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(4):
        if barrier:
            dist.barrier()
        layer(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def test_what_a_finding_saves_is_computed_by_a_run_without_it() -> None:
    found = labkit.audit(meet, True, on=TWO, what_if=True)
    (one,) = [one for one in found.findings if one.rule == "barrier-each-step"]
    without = labkit.run(meet, False, on=TWO, echo=False).timeline
    assert without is not None and one.evidence["takes_ns_changed"] == without.makespan_ns
    assert one.evidence["saves_ns"] == one.evidence["takes_ns_in_all"] - without.makespan_ns > 0
    assert "Run again without these barriers" in one.advice
