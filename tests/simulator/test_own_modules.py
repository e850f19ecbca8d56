"""Each rank has its own copy of every module that is not installed, and of what a process changes for itself alone."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import io
import logging
import os
import signal
import string
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import RankFailed

PROJECT = {
    "ours_train.py": """
import importlib, pickle, sys
import torch, torch.distributed as dist
import ours_state, ours_package

def main():
    rank = dist.get_rank()
    ours_state.init(rank)
    dist.barrier()
    total = torch.tensor(float(ours_state.rank))
    dist.all_reduce(total)
    ours_package.inner.table[rank] = rank
    boxes = [None] * dist.get_world_size()
    dist.all_gather_object(boxes, ours_package.Box(rank))
    import ours_train
    return (
        float(total), ours_state.helper.seen, sorted(ours_package.inner.table), ours_package.inner.who(rank),
        all(type(box) is ours_package.Box for box in boxes), [box.value for box in boxes],
        ours_train.main is main, importlib.import_module("ours_package.inner") is ours_package.inner,
        type(pickle.loads(pickle.dumps(ours_package.Box(1)))) is ours_package.Box,
        sys.modules["ours_state"] is ours_state,
    )

def box():
    return ours_package.Box(dist.get_rank())

def compiled():
    dist.barrier()
    return id(main.__code__), id(main)
""",
    "ours_state.py": """
import ours_helper as helper
rank = None

def init(number):
    global rank
    rank = number
    helper.seen.append(number)
""",
    "ours_helper.py": "seen = []\n",
    "ours_package/__init__.py": "from . import inner\nfrom .inner import Box\n",
    "ours_package/inner.py": """
import functools
table = {}

class Box:
    def __init__(self, value):
        self.value = value

@functools.cache
def who(asked):
    return asked
""",
    "ours_meeting.py": "import torch.distributed as dist\ndist.barrier()\nrank = dist.get_rank()\ndist.barrier()\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import ours_train  # type: ignore[import-not-found]

    yield ours_train
    for name in [name for name in sys.modules if name.startswith("ours_")]:
        del sys.modules[name]


def _run(fn: Any, *args: Any, world_size: int = 3, **more: Any) -> Any:
    return labkit.run(fn, *args, on=labkit.virtual(world_size), echo=False, **more)


def test_a_project_of_several_files_does_on_virtual_ranks_what_it_does_in_processes(project: Any) -> None:
    virtual, local = (
        labkit.run(project.main, on=world, echo=False).results
        for world in (labkit.virtual(3), labkit.local(3, device="cpu"))
    )
    assert virtual == local
    assert [result[:4] for result in virtual] == [(3.0, [rank], [rank], rank) for rank in range(3)]


def test_the_callers_modules_are_as_they_were_and_results_are_of_their_classes(project: Any) -> None:
    boxes = _run(project.box).results
    package = sys.modules["ours_package"]
    assert all(type(box) is package.Box for box in boxes) and [box.value for box in boxes] == [0, 1, 2]
    assert sys.modules["ours_train"] is project and package.inner.table == {}
    assert sys.modules["ours_state"].rank is None


def test_modules_first_imported_in_a_rank_are_gone_after_it(project: Any) -> None:
    def meet() -> int:
        import ours_meeting  # type: ignore[import-not-found]

        return int(ours_meeting.rank)

    assert _run(meet).results == [0, 1, 2]  # each waits for the others in the middle of its import
    assert "ours_meeting" not in sys.modules


def test_what_an_installer_put_beside_its_record_is_one_for_all_ranks(project: Any, tmp_path: Path) -> None:
    (tmp_path / "apart_package").mkdir()
    (tmp_path / "apart_package" / "__init__.py").write_text("from . import inner\n")
    (tmp_path / "apart_package" / "inner.py").write_text("")
    (tmp_path / "apart_module.py").write_text("")
    record = tmp_path / "apart-1.0.dist-info" / "RECORD"  # as pip install --target leaves it
    record.parent.mkdir()
    record.write_text("apart_module.py,sha256=x,0\napart_package/__init__.py,sha256=x,20\napart_package/inner.py,,\n")

    def which() -> tuple[int, int, int]:
        import apart_module  # type: ignore[import-not-found]
        import apart_package.inner  # type: ignore[import-not-found]
        import ours_helper  # type: ignore[import-not-found]

        dist.barrier()
        return id(apart_module), id(apart_package.inner), id(ours_helper)

    modules, inner, sources = zip(*_run(which).results, strict=True)
    assert len(set(modules)) == len(set(inner)) == 1
    assert len(set(sources)) == 3  # lies in the same folder, and no record names it
    for name in [name for name in sys.modules if name.startswith("apart_")]:
        del sys.modules[name]


def test_ranks_share_the_code_of_a_module_and_nothing_else(project: Any) -> None:
    codes, functions = zip(*_run(project.compiled).results, strict=True)
    assert len(set(codes)) == 1 and len(set(functions)) == 3


@functools.cache
def cached_rank() -> int:
    return dist.get_rank()


def test_what_a_function_remembers_is_each_ranks_own() -> None:
    @functools.cache
    def here() -> int:
        return dist.get_rank()

    def ask() -> tuple[int, int]:
        found = cached_rank(), here()
        dist.barrier()
        return found

    for world in (labkit.virtual(3), labkit.local(3, device="cpu")):
        assert labkit.run(ask, on=world, echo=False).results == [(0, 0), (1, 1), (2, 2)]
    assert cached_rank.cache_info().currsize == 0


@pytest.mark.in_turn
def test_a_group_that_another_rank_keeps_in_a_shared_module_raises_at_once_and_says_where() -> None:
    def share() -> None:
        shared: Any = string
        if dist.get_rank() == 0:
            shared.kept_group = {"world": dist.group.WORLD}
        dist.barrier()
        dist.all_reduce(torch.ones(1), group=shared.kept_group["world"])

    try:
        with pytest.raises(RankFailed, match=r"rank 1 of 2 failed first.*as rank 0 made it") as failed:
            _run(share, world_size=2)
        assert "string.kept_group['world'] holds it, in a module that all virtual ranks share" in str(failed.value)
    finally:
        vars(string).pop("kept_group", None)


def test_redirected_output_warnings_and_loggers_are_each_ranks_own(capsys: pytest.CaptureFixture[str]) -> None:
    def speak() -> tuple[str, list[str], list[str]]:
        rank, caught = dist.get_rank(), io.StringIO()
        with contextlib.redirect_stdout(caught), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            dist.barrier()
            print("rank", rank)
            warnings.warn(f"from {rank}", stacklevel=1)
            dist.barrier()
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger().addHandler(handler)
        logging.getLogger("ours").setLevel(logging.INFO if rank else logging.ERROR)
        dist.barrier()
        logging.getLogger("ours").info("from %d", rank)
        dist.barrier()
        return caught.getvalue(), [str(one.message) for one in seen], lines

    before = list(logging.getLogger().handlers), logging.getLogger("ours").level
    run = _run(speak)
    assert run.results == [
        ("rank 0\n", ["from 0"], []),
        ("rank 1\n", ["from 1"], ["from 1"]),
        ("rank 2\n", ["from 2"], ["from 2"]),
    ]
    assert run.output == [""] * 3
    assert (list(logging.getLogger().handlers), logging.getLogger("ours").level) == before


def _of_c_library(name: str) -> bytes | None:
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    value: bytes | None = getenv(name.encode())
    return value


def test_folder_environment_and_settings_of_torch_are_each_ranks_own(tmp_path: Path) -> None:
    def change(folder: str) -> tuple[Any, ...]:
        rank = dist.get_rank()
        if rank:
            mine = Path(folder, str(rank))
            mine.mkdir()
            os.chdir(mine)
            os.environ["OURS"] = str(rank)
        if rank == 1:
            torch.set_float32_matmul_precision("high")
        sys.path.append(f"of rank {rank}")
        dist.barrier()
        return (
            Path.cwd().name,
            _of_c_library("RANK"),
            _of_c_library("OURS"),
            torch.get_float32_matmul_precision(),
            sys.path[-1],
        )

    here, path = Path.cwd(), list(sys.path)
    found = _run(change, str(tmp_path)).results
    assert found == [
        (here.name, b"0", None, "highest", "of rank 0"),
        ("1", b"1", b"1", "high", "of rank 1"),
        ("2", b"2", b"2", "highest", "of rank 2"),
    ]
    assert Path.cwd() == here and sys.path == path and torch.get_float32_matmul_precision() == "highest"
    assert not {"OURS", "RANK"} & set(os.environ) and _of_c_library("RANK") is _of_c_library("OURS") is None


def test_c_code_reads_names_as_ranks_change_lengthen_and_remove_them() -> None:
    def change() -> list[tuple[bytes | None, ...]]:
        rank = dist.get_rank()
        seen: list[tuple[bytes | None, ...]] = []
        for turn in range(3):
            dist.barrier()
            seen.append((_of_c_library("RANK"), _of_c_library("LOCAL_RANK"), _of_c_library("OURS")))
            if (rank, turn) == (0, 0):
                os.environ["RANK"], os.environ["OURS"] = "longer by far than a number " * 4, "a"
            if (rank, turn) == (1, 0):
                del os.environ["LOCAL_RANK"]
            if (rank, turn) == (0, 1):
                os.environ["OURS"] = "longer"
            if (rank, turn) == (1, 1):
                os.environ["LOCAL_RANK"] = "here again"
        return seen

    long = b"longer by far than a number " * 4
    assert _run(change).results == [
        [(b"0", b"0", None), (long, b"0", b"a"), (long, b"0", b"longer")],
        [(b"1", b"1", None), (b"1", None, None), (b"1", b"here again", None)],
        [(b"2", b"2", None)] * 3,
    ]
    assert not {"OURS", "RANK"} & set(os.environ) and _of_c_library("RANK") is _of_c_library("OURS") is None


def test_loss_parallel_in_one_rank_is_none_of_another() -> None:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import loss_parallel

    def enter() -> list[int]:
        handlers = DTensor._op_dispatcher
        counts = [len(handlers._custom_op_handlers)]
        if dist.get_rank() == 0:
            with loss_parallel():
                dist.barrier()
                counts.append(len(handlers._custom_op_handlers))
                dist.barrier()
        else:
            dist.barrier()
            counts.append(len(handlers._custom_op_handlers))
            dist.barrier()
        return counts

    first, second = _run(enter, world_size=2).results
    assert first[1] > first[0] and second[1] == second[0] == first[0]


def test_what_real_ranks_cannot_send_as_an_object_virtual_ranks_cannot_either() -> None:
    def send() -> str:
        every: list[Any] = [None] * 2
        try:
            dist.all_gather_object(every, lambda: None)
        except Exception as error:
            return str(error)
        return "sent"

    virtual, local = (
        labkit.run(send, on=world, echo=False).results for world in (labkit.virtual(2), labkit.local(2, device="cpu"))
    )
    assert virtual == local and "Can't pickle local object" in virtual[0]


@pytest.mark.long
def test_modules_of_512_ranks_take_a_few_hundred_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    classes = "\n".join(f"class C{k}(nn.Module):\n    def forward(self, x):\n        return x\n" for k in range(20))
    for number in range(10):
        (tmp_path / f"ours_m{number}.py").write_text(f"from torch import nn\n{classes}")
    (tmp_path / "ours_many.py").write_text(
        "\n".join(f"import ours_m{number}" for number in range(10))
        + "\nimport torch.distributed as dist\ndef main():\n    dist.barrier()\n    return memory()\n"
        "def memory():\n    import psutil\n    return psutil.Process().memory_info().rss\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import ours_many  # type: ignore[import-not-found]

    before = psutil.Process().memory_info().rss
    most = max(_run(ours_many.main, world_size=512).results)
    assert most - before < 600e6, f"{(most - before) / 1e6:.0f} MB for 512 ranks of 200 classes"
    for name in [name for name in sys.modules if name.startswith("ours_")]:
        del sys.modules[name]


def _global_hooks() -> tuple[int, int]:
    """Rank 1 alone hooks every module; returns how often its hook ran here, and how many hooks there are in the end."""
    calls: list[int] = []
    layer = torch.nn.Linear(2, 2)
    handle = None
    if dist.get_rank() == 1:
        handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: calls.append(1))
    dist.barrier()
    layer(torch.ones(1, 2))
    dist.barrier()
    if handle is not None:
        handle.remove()
    dist.barrier()
    layer(torch.ones(1, 2))
    hooks: Any = vars(torch.nn.modules.module)["_global_forward_hooks"]
    return len(calls), len(hooks)


def test_a_hook_of_all_modules_is_that_of_the_rank_that_set_it() -> None:
    before = vars(torch.nn.modules.module)["_global_forward_hooks"]
    run = labkit.run(_global_hooks, on=labkit.virtual(3), echo=False)
    assert run.results == [(0, 0), (1, 0), (0, 0)]
    assert vars(torch.nn.modules.module)["_global_forward_hooks"] is before
    assert not before


def test_print_as_a_master_leaves_it_and_how_tensors_are_shown_are_each_ranks_own() -> None:
    def speak() -> tuple[str, bool]:
        rank, shown = dist.get_rank(), builtins.print

        def of_the_master(*args: Any, force: bool = False, **kwargs: Any) -> None:
            if rank == 0 or force:
                shown(*args, **kwargs)

        builtins.print = of_the_master
        if rank == 1:
            torch.set_printoptions(precision=1)
            torch.autograd.set_detect_anomaly(True)
        dist.barrier()
        print("of", rank)
        print("forced", rank, force=True)  # type: ignore[call-overload]
        dist.barrier()
        return str(torch.tensor(0.125)), torch.is_anomaly_enabled()

    before = builtins.print
    run = _run(speak)
    assert run.output == ["of 0\nforced 0\n", "forced 1\n", "forced 2\n"]
    assert run.results == [("tensor(0.1250)", False), ("tensor(0.1)", True), ("tensor(0.1250)", False)]
    assert builtins.print is before and str(torch.tensor(0.125)) == "tensor(0.1250)"


def test_handlers_of_signals_are_each_ranks_own_and_no_timer_sends_one() -> None:
    def prepare() -> tuple[bool, int, str]:
        def save(number: int, frame: object) -> None:
            pass

        fresh = signal.signal(signal.SIGTERM, save)
        dist.barrier()
        mine = signal.getsignal(signal.SIGTERM) is save
        with pytest.raises(RuntimeError) as refused:
            signal.setitimer(signal.ITIMER_REAL, 1)
        return mine, int(fresh), str(refused.value)  # type: ignore[arg-type]

    before = signal.getsignal(signal.SIGTERM)
    results = _run(prepare).results
    assert [result[:2] for result in results] == [(True, int(signal.SIG_DFL))] * 3
    assert results[0][2].startswith("signal.setitimer was called on a virtual rank: no signal reaches one")
    assert signal.getsignal(signal.SIGTERM) is before


def test_functions_and_methods_of_installed_modules_are_put_back_and_told() -> None:
    def patch() -> float:
        real = torch.nn.functional.relu

        @functools.wraps(real)
        def leaky(tensor: torch.Tensor, inplace: bool = False) -> torch.Tensor:
            return torch.nn.functional.leaky_relu(tensor)

        torch.nn.functional.relu = leaky
        torch.nn.Identity.forward = lambda self, tensor: tensor + 1  # type: ignore[assignment, method-assign]
        return float(torch.nn.Identity()(torch.nn.functional.relu(-torch.ones(1))))

    before = torch.nn.functional.relu, torch.nn.Identity.forward
    run = _run(patch)
    assert (torch.nn.functional.relu, torch.nn.Identity.forward) == before
    told = [problem.text for problem in run.timeline.problems if problem.kind == "not_modelled"]
    assert run.results == [pytest.approx(0.99)] * 3
    assert [text.split(":")[0] for text in told] == [
        "The program replaced torch.nn.functional.relu",
        "The program replaced torch.nn.modules.linear.Identity.forward",
    ]
