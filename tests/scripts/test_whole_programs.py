"""Programs written as people write them, unedited on both worlds: the virtual one with CUDA devices, the local without.

What they learn is the same: losses, weights, what a resumed run goes on from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import labkit

PROGRAMS = Path(__file__).parent / "programs"


def _run(name: str, *args: object, on: Any) -> tuple[list[dict[str, Any]], labkit.Run]:
    """Return what each rank says it learned, and the run."""
    run = labkit.run(labkit.script(PROGRAMS / name, *args), on=on, echo=False)
    return [json.loads(text.split("RESULT ")[1].splitlines()[0]) for text in run.output], run


def _on_both(name: str, *args: object, size: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], labkit.Run]:
    local, _ = _run(name, *args, on=labkit.local(size, device="cpu"))
    virtual, run = _run(name, *args, on=labkit.virtual(size))
    return local, virtual, run


def _hold_equal(local: list[dict[str, Any]], virtual: list[dict[str, Any]], rel: float = 1e-5) -> None:
    assert [list(one) for one in local] == [list(one) for one in virtual]
    for here, there in zip(local, virtual, strict=True):
        for name, value in here.items():
            assert there[name] == (value if name in ("place", "rank", "main") else pytest.approx(value, rel=rel)), name


@pytest.mark.in_turn
def test_a_trainer_with_a_snapshot_learns_the_same_and_goes_on_from_it(tmp_path: Path) -> None:
    found = {}
    for world in ("local", "virtual"):
        snapshot = tmp_path / f"{world}.pt"
        on = labkit.local(2, device="cpu") if world == "local" else labkit.virtual(2)
        first, _ = _run("multi_gpu.py", 1, 1, "--snapshot", snapshot, on=on)
        second, run = _run("multi_gpu.py", 2, 1, "--snapshot", snapshot, on=on)
        assert "resuming at epoch 1" in run.output[0]
        found[world] = first, second
    for local, virtual in zip(found["local"], found["virtual"], strict=True):
        _hold_equal(local, virtual)


@pytest.mark.in_turn
def test_a_gpt_of_two_files_with_accumulation_and_clipping_learns_the_same(tmp_path: Path) -> None:
    local, virtual, run = _on_both("gpt/train.py", f"--out_dir={tmp_path}", size=2)
    _hold_equal(local, virtual)
    assert run.timeline is not None and not run.timeline.problems
    # Fewer all-reduces than micro-steps: those in between are not synchronised.
    assert (run.timeline.spans(rank=0).kind == "all_reduce").sum() <= 6


@pytest.mark.in_turn
def test_a_gpt_on_virtual_devices_in_half_precision_compiled_with_workers_runs_and_says_what_it_is_without(
    tmp_path: Path,
) -> None:
    args = (f"--out_dir={tmp_path}", "--dtype=float16", "--compile=True", "--num_workers=2", "--max_iters=2")
    (first, _), run = _run("gpt/train.py", *args, on=labkit.virtual(2))
    assert all(3 < loss < 4 for loss in first["losses"])
    assert run.timeline is not None and len(run.timeline.problems) == 2
    (again, _), _ = _run("gpt/train.py", *args, "--init_from=resume", "--max_iters=3", on=labkit.virtual(2))
    assert len(again["losses"]) == 1


@pytest.mark.in_turn
def test_tensor_pipeline_and_data_parallelism_by_hand_learn_the_same() -> None:
    local, virtual, _ = _on_both("three_axes/train.py", "--dp", 1, "--steps", 2, size=4)
    _hold_equal(local, virtual)
    assert {tuple(one["place"]) for one in virtual} == {(tp, pp, 0) for tp in (0, 1) for pp in (0, 1)}


@pytest.mark.long
def test_all_three_on_eight_ranks_learn_the_same() -> None:
    local, virtual, _ = _on_both("three_axes/train.py", size=8)
    _hold_equal(local, virtual)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_sharded_training_on_a_device_mesh_learns_the_same() -> None:
    local, virtual, _ = _on_both("sharded.py", size=4)
    _hold_equal(local, virtual)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:`torch.distributed.all_gather_into_tensor` is deprecated:FutureWarning")
@pytest.mark.parametrize("library", ["accelerate", "pytorch_lightning"])
def test_a_library_that_launches_training_learns_the_same(library: str, tmp_path: Path) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed: pip install -e '.[foreign]'")
    name = {"accelerate": "with_accelerate.py", "pytorch_lightning": "with_lightning.py"}[library]
    local, virtual, _ = _on_both(f"foreign/{name}", tmp_path, size=2)
    _hold_equal(local, virtual)
    assert [(one["rank"], one["size"]) for one in virtual] == [(0, 2), (1, 2)]
