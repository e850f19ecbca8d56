"""A script runs on a world as torchrun would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import ConfigError, RankFailed
from tests.lasting_port import lasting_port

PROGRAMS = Path(__file__).parent / "programs"
WORLDS = {"virtual": lambda size: labkit.virtual(size), "local": lambda size: labkit.local(size)}


def _run(name: str, *args: object, on: Any) -> labkit.Run:
    return labkit.run(labkit.script(PROGRAMS / f"{name}.py", *args), on=on, echo=False)


@pytest.mark.in_turn
@pytest.mark.parametrize("world", WORLDS)
def test_a_script_finds_what_torchrun_would_give_it(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROGRAMS)
    before = sys.modules["__main__"], list(sys.argv), list(sys.path)
    run = labkit.run(labkit.script("ranks_own_words.py", "--steps", 3), on=WORLDS[world](2), echo=False)
    for rank, printed in enumerate(run.output):
        found = json.loads(printed)
        assert found["main"] and found["notes"]
        assert found["argv"] == ["ranks_own_words.py", "--steps", "3"] and found["still"] == f"changed by rank {rank}"
        assert found["beside"] == "programs"
        assert found["environment"] == [str(rank), "2", str(rank), "2", "0", "labkit"]
    assert run.results == [None, None]
    assert (sys.modules["__main__"], sys.argv, sys.path) == before and "TORCHELASTIC_RUN_ID" not in os.environ


@pytest.mark.long
def test_both_worlds_and_torchrun_train_to_the_same_weights() -> None:
    script = PROGRAMS / "ranks_own_words.py"
    launched = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, "--steps", "4"],
        capture_output=True, text=True, timeout=120, cwd=script.parent, check=True,
    )  # fmt: skip
    expected = json.JSONDecoder().raw_decode(launched.stdout.lstrip())[0]["weight"]  # two ranks may share a line
    for world in WORLDS.values():
        run = _run("ranks_own_words", "--steps", 4, on=world(2))
        assert [json.loads(text)["weight"] for text in run.output] == [expected] * 2


@pytest.mark.in_turn
@pytest.mark.parametrize("world", WORLDS)
def test_every_optimizer_step_is_on_the_timeline(world: str) -> None:
    run = _run("ranks_own_words", "--steps", 5, on=WORLDS[world](2))
    assert run.timeline is not None
    assert [int(((run.timeline.name == "optimizer.step") & (run.timeline.rank == r)).sum()) for r in (0, 1)] == [5, 5]


@pytest.mark.parametrize("world", WORLDS)
def test_a_script_that_exits_with_a_status_has_failed_on_that_line(world: str, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import os, sys\n\nif os.environ['RANK'] == '1':\n    sys.exit(3)\n")
    with pytest.raises(RankFailed, match=r"fails.py ended with sys.exit\(3\)") as failed:
        labkit.run(labkit.script(script), on=WORLDS[world](2), echo=False)
    assert failed.value.rank == 1
    assert 'fails.py", line 4, in <module>' in str(failed.value)


@pytest.mark.parametrize("world", WORLDS)
def test_a_traceback_begins_in_the_script(world: str, tmp_path: Path) -> None:
    script = tmp_path / "raises.py"
    script.write_text("def inner():\n    raise ValueError('on purpose')\n\ninner()\n")
    with pytest.raises(RankFailed, match="on purpose") as failed:
        labkit.run(labkit.script(script), on=WORLDS[world](1), echo=False)
    assert 'raises.py", line 4, in <module>' in str(failed.value) and "scripts.py" not in str(failed.value)


@pytest.mark.in_turn
@pytest.mark.parametrize("world", WORLDS)
def test_a_script_that_leaves_its_group_is_told_so(world: str, tmp_path: Path) -> None:
    script = tmp_path / "leaves.py"
    script.write_text("import torch.distributed as dist\ndist.init_process_group('gloo')\n")
    run = labkit.run(labkit.script(script), on=WORLDS[world](2), echo=False)
    assert "ended without dist.destroy_process_group()" in run.output[0] and not run.output[1]


def test_a_script_that_leaves_its_virtual_devices_alone_is_told_what_its_time_is(tmp_path: Path) -> None:
    script = tmp_path / "on_the_host.py"
    script.write_text("import torch\ntorch.ones(100, 100) @ torch.ones(100, 100)\n")
    runs = {
        cuda: labkit.run(labkit.script(script), on=labkit.virtual(1, cuda=cuda), echo=False) for cuda in (None, False)
    }
    assert runs[None].elapsed_ns == 0 and runs[False].elapsed_ns > 0
    assert "No rank put a tensor on its CUDA device" in runs[None].timeline.problems[0].text  # type: ignore[union-attr]
    assert not runs[False].timeline.problems  # type: ignore[union-attr]


def test_what_a_script_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no script 'nowhere.py' in "):
        labkit.script("nowhere.py")
    script = labkit.script(PROGRAMS / "ranks_own_words.py")
    with pytest.raises(ConfigError, match="initialises its own process group; leave init=True out"):
        labkit.run(script, on=labkit.local(1), init=True)
    with pytest.raises(ConfigError, match=r"write labkit.script\('ranks_own_words.py', ...\)"):
        labkit.run(script, "--steps", on=labkit.local(1))


def set_up(rank: int, world_size: int, port: int) -> None:
    """As tutorials do it."""
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def set_up_by_address(rank: int, world_size: int, port: int) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=rank, world_size=world_size)


def sums(port: int, another: int) -> list[float]:
    found = []
    for each, place in ((set_up, port), (set_up, port), (set_up_by_address, another)):
        each(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), place)
        value = torch.ones(1)
        dist.all_reduce(value)
        found.append(float(value))
        dist.destroy_process_group()
    return found


@pytest.mark.in_turn
@pytest.mark.parametrize("world", WORLDS)
def test_a_program_that_names_a_port_of_its_own_meets_there_with_init_false(world: str) -> None:
    ports = lasting_port(), lasting_port()
    assert labkit.run(sums, *ports, on=WORLDS[world](3), init=False, echo=False).results == [[3.0] * 3] * 3


@pytest.mark.in_turn
@pytest.mark.parametrize("world", WORLDS)
def test_a_second_group_is_told_to_pass_init_false(world: str) -> None:
    with pytest.raises(RankFailed, match=r"initialised already.*pass init=False to labkit.run"):
        labkit.run(sums, lasting_port(), lasting_port(), on=WORLDS[world](2), echo=False)
    assert dist.init_process_group.__module__ == "torch.distributed.distributed_c10d"
