"""Each mistake is found by its rule, on its line; and nothing is said of the right program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import labkit
from labkit.auditing.catalogue import RULES, table
from labkit.cli import app
from tests.audit.programs import MISTAKES, train

FOUR = labkit.virtual(4)
SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(3, 4)).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.in_turn
@pytest.mark.parametrize("wrapped", [False, True], ids=["by hand", "DDP"])
def test_a_right_program_is_left_alone(wrapped: bool) -> None:
    found = labkit.audit(train, "", wrapped, on=FOUR)
    assert not [one for one in found.findings if one.severity != "slow"], found
    assert found.num_steps == 4
    assert {*found.held, *found.not_looked_at, *(one.rule for one in found.findings)} == set(RULES)
    assert "epochs-alike" in found.held
    assert found.not_looked_at["parts-from-one-process"] == "run again on one process with --against 1"


@pytest.mark.in_turn
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_by_its_rule_and_no_other(mistake: str) -> None:
    found = labkit.audit(train, mistake, on=FOUR)
    grave = [one for one in found.findings if one.severity != "slow"]
    assert [one.rule for one in grave] == [MISTAKES[mistake]], found
    one = grave[0]
    assert one.severity == "wrong"
    assert one.file.endswith("programs.py")
    assert one.line > 0
    assert one.rule not in found.held


def test_a_script_is_audited_from_the_command_line_and_ends_after_its_steps(tmp_path: Path) -> None:
    path, written, shown = tmp_path / "train.py", tmp_path / "found.json", tmp_path / "found.html"
    path.write_text(SCRIPT)
    command = ["audit", str(path), "--on", "virtual:2", "--steps", "3", "--fail"]
    done = CliRunner().invoke(app, [*command, "--json", str(written), "--html", str(shown)])
    assert done.exit_code == 1, done.output
    data = json.loads(written.read_text())
    assert data["num_steps"] == 3
    one = data["findings"][0]
    assert (one["rule"], one["severity"], one["rank"], one["step"]) == ("parameters-begin-unequal", "wrong", 1, 0)
    assert (one["file"], one["line"], one["tensor"]) == (str(path), 5, "weight")
    assert "parameters-begin-unequal" in shown.read_text()
    assert "weight[0, 0] is" in done.output


def test_a_rule_is_explained() -> None:
    name, rule = next(iter(RULES.items()))
    done = CliRunner().invoke(app, ["explain", name])
    assert done.exit_code == 0
    assert rule.todo in done.output
    assert "There is no rule 'none'" in CliRunner().invoke(app, ["explain", "none"]).output


def test_the_documentation_has_every_rule() -> None:
    text = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    assert table() in text, "write labkit.auditing.catalogue.table() between the marks of docs/audit.md"
