"""script(): a training script as it is, taken to a world in place of a function."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit.errors import ConfigError
from labkit.launch.rank import span
from labkit.timeline.training import STEP

_TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "labkit", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
}  # fmt: skip
"""What torchrun sets besides what every rank of labkit has, by which libraries know that they were launched."""


@dataclass(frozen=True)
class Script:
    """A program and its arguments; made by script().

    Attributes:
        path: The file.
        args: What it finds in ``sys.argv`` after its own name.
        called: That name, as it was given; "" for the path.
    """

    path: str
    args: tuple[str, ...] = ()
    called: str = ""

    def __call__(self) -> None:
        """Run the script in this rank as ``torchrun`` would: as ``__main__``, with the files beside it importable."""
        path = Path(self.path)
        main = ModuleType("__main__")
        main.__dict__.update(__file__=str(path), __builtins__=__builtins__, __spec__=None, __cached__=None)
        sys.modules["__main__"] = main
        sys.argv = [self.called or str(path), *self.args]
        sys.path = [str(path.parent), *sys.path]
        for name, value in _TORCHRUN.items():
            os.environ.setdefault(name, value)  # a world that starts ranks again has said it
        with _steps_recorded(), _no_ranks_of_its_own(self.name):
            try:
                exec(compile(path.read_bytes(), str(path), "exec"), main.__dict__)
            except SystemExit as end:
                if end.code not in (None, 0):
                    ended = RuntimeError(f"{path.name} ended with sys.exit({end.code!r}).")
                    raise ended.with_traceback(end.__traceback__) from None
        _say_what_is_left()

    @property
    def name(self) -> str:
        """The file's name."""
        return Path(self.path).name


def script(path: str | Path, *args: object) -> Script:
    """Return a script to run in place of a function: ``labkit.run(labkit.script("train.py"), on=world)``.

    It runs as under ``torchrun``: as ``__main__`` on every rank, with torchrun's environment and the files beside it,
    and it calls ``init_process_group`` itself. On ``labkit.virtual`` it finds virtual CUDA devices, unless the world
    says ``cuda=False``. The run's results are None; its output and timeline are what the script did. Every
    ``optimizer.step()`` is on the timeline, so that steps can be told apart.

    Args:
        path: The Python file, as seen from here.
        *args: Its arguments, as on a command line.

    Raises:
        ConfigError: If there is no such file.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        folder = ": that is a folder" if file.is_dir() else ""
        raise ConfigError(f"There is no script {str(path)!r} in {Path.cwd()}{folder}; give the path of a Python file.")
    return Script(str(file.resolve()), tuple(str(arg) for arg in args), str(path))


@contextmanager
def _steps_recorded() -> Iterator[None]:
    """Record a span around every optimizer step of the body; a virtual rank's hooks are its own, as a process's are."""
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    under_way: dict[int, Any] = {}

    def before(optimizer: Any, _: Any, __: Any) -> None:
        region = under_way[id(optimizer)] = span(STEP, "host")
        region.__enter__()

    def after(optimizer: Any, _: Any, __: Any) -> None:
        region = under_way.pop(id(optimizer), None)
        if region is not None:
            region.__exit__(None, None, None)

    handles = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _no_ranks_of_its_own(name: str) -> Iterator[None]:
    """Tell a script on several ranks that starts its own that each of them would; virtual ranks are told anyway."""
    if os.environ.get("WORLD_SIZE", "1") == "1" or "torch.multiprocessing" not in sys.modules or _is_virtual():
        yield
        return
    import torch.multiprocessing as torch_processes

    def refuse(fn: Any, args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> Any:
        size = os.environ["WORLD_SIZE"]
        raise RuntimeError(
            f"{name} starts its own ranks: mp.spawn(nprocs={nprocs}), on each of the {size} ranks that labkit has "
            f"started. Run it on one rank (local:1), or give labkit.run the function that mp.spawn starts."
        )

    module: Any = torch_processes
    before = {word: getattr(module, word) for word in ("spawn", "start_processes")}
    for word in before:
        setattr(module, word, refuse)
    try:
        yield
    finally:
        for word, real in before.items():
            setattr(module, word, real)


def _is_virtual() -> bool:
    simulator = sys.modules.get("labkit.simulator.state")
    return simulator is not None and simulator.current_rank() is not None


def _say_what_is_left() -> None:
    import torch.distributed as dist

    if os.environ.get("RANK") == "0" and dist.is_available() and dist.is_initialized():
        print("[labkit] the script ended without dist.destroy_process_group(); labkit left the group.", file=sys.stderr)
