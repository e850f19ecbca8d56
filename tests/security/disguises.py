"""A program: torch's own parallel training in disguises, as a submission might call it in a rank of a hidden case.

Prints for each disguise "made" where it came as far as a message that the relay would take, else what it was told.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from labkit.grading.relay.client import RelayClient
from labkit.grading.relay.relay_port import register
from labkit.torch_port.own_parallelism import close_reducer
from labkit.torch_port.stores import HashStore

DDP: Any = nn.parallel.DistributedDataParallel


class Reached(Exception):
    """A message would have left."""


class NoRelay(RelayClient):
    """A rank's end of a relay that is not there."""

    def __init__(self) -> None:
        super().__init__(None, torchs_own=False)  # type: ignore[arg-type]

    def _write(self, header: Mapping[str, Any], payload: object = b"") -> None:
        raise Reached


def model() -> nn.Module:
    """Return something to train."""
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def train(wrapped: Any) -> None:
    """Take a step's backward."""
    wrapped(torch.ones(3, 4)).sum().backward()


def reducer_of(kind: Any) -> object:
    """Return a reducer as DistributedDataParallel makes it."""
    parameters = list(model().parameters())
    group = dist.group.WORLD
    return kind(parameters, [list(range(len(parameters)))], [2**20], group, [False] * len(parameters), 2**20, False)


def copied(path: str) -> Any:
    """Return a module out of the source of one of torch's, under another name and file."""
    source = Path(inspect.getsourcefile(importlib.import_module(path)) or "").read_text()
    made = ModuleType("mine")
    made.__package__ = path.rpartition(".")[0]
    sys.modules["mine"] = made
    exec(compile(source, "<exercise 4.2>", "exec"), made.__dict__)
    return made


class Lazy(nn.Module):
    """Wraps at the first forward."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner, self.wrapped = module, None

    def forward(self, x: torch.Tensor) -> Any:
        self.wrapped = self.wrapped or DDP(self.inner, init_sync=False)
        return self.wrapped(x)


def in_a_thread() -> None:
    """Wrap in another thread."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            train(DDP(model(), init_sync=False))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise errors[0] if errors else Reached


def without_its_refusal() -> None:
    """Take the refusal away first."""
    del torch.distributed.Reducer.__init__
    try:
        reducer_of(torch.distributed.Reducer)
    finally:
        close_reducer()


def by_its_base() -> object:
    """Make a reducer past its constructor."""
    kind: Any = torch.distributed.Reducer
    made = kind.__new__(kind)
    kind.__mro__[1].__init__(made)
    return made


def found() -> Any:
    """Return the reducer's class from among all objects."""
    kinds = (each for each in gc.get_objects() if isinstance(each, type) and each.__name__ == "Reducer")
    return next(each for each in kinds if hasattr(each, "_rebuild_buckets"))


def with_a_hook() -> None:
    """Wrap with a communication hook of torch's."""
    hooks = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
    wrapped = DDP(model(), init_sync=False)
    wrapped.register_comm_hook(None, hooks.fp16_compress_hook)
    train(wrapped)


def fully_sharded() -> None:
    """Shard as FSDP2 does."""
    module = model()
    importlib.import_module("torch.distributed.fsdp").fully_shard(module, mesh=mesh())
    train(module)


def mesh() -> DeviceMesh:
    """Return a mesh of all ranks, which nobody is asked about."""
    return DeviceMesh.from_group(dist.group.WORLD, "cpu")


def sharded_optimizer() -> None:
    """Take a step of ZeroRedundancyOptimizer."""
    optim = importlib.import_module("torch.distributed.optim")
    module = model()
    optimizer = optim.ZeroRedundancyOptimizer(module.parameters(), torch.optim.SGD, lr=0.1)
    train(module)
    optimizer.step()


def pipeline() -> None:
    """Run a schedule of torch's."""
    pipelining = importlib.import_module("torch.distributed.pipelining")
    stage = pipelining.PipelineStage(model(), 0, 2, torch.device("cpu"), input_args=(torch.ones(1, 4),),
                                     output_args=(torch.ones(1, 2),))  # fmt: skip
    pipelining.ScheduleGPipe(stage, 2, loss_fn=lambda out, target: out.sum()).step(torch.ones(2, 4))


def tensor_parallel() -> None:
    """Split layers as torch does."""
    parallel = importlib.import_module("torch.distributed.tensor.parallel")
    module = model()
    parallel.parallelize_module(module, mesh(), {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()})
    train(module)


def averaged() -> None:
    """Average parameters as torch's local SGD does."""
    utils = importlib.import_module("torch.distributed.algorithms.model_averaging.utils")
    utils.average_parameters(iter(model().parameters()), dist.group.WORLD)


def joined() -> None:
    """Go on with fewer ranks as torch's Join does."""
    join = importlib.import_module("torch.distributed.algorithms.join")

    class Mine(join.Joinable):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()

        def join_hook(self, **kwargs: object) -> Any:
            return join.JoinHook()

        join_device, join_process_group = torch.device("cpu"), dist.group.WORLD

    with join.Join([Mine()]):
        pass


def honest() -> None:
    """Average in a hook of one's own."""
    module = model()
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(lambda each: dist.all_reduce(each.grad))
    train(module)


DISGUISES: dict[str, Callable[[], object]] = {
    "by name": lambda: DDP(model()),
    "a subclass": lambda: type("Mine", (DDP,), {})(model()),
    "imported by a text": lambda: getattr(
        importlib.import_module("torch.nn.par" + "allel"), "Distributed" + "DataParallel"
    )(model(), init_sync=False),
    "nothing compared at its start": lambda: train(DDP(model(), init_sync=False)),
    "views and a static graph": lambda: train(
        DDP(model(), init_sync=False, static_graph=True, gradient_as_bucket_view=True)
    ),
    "made in forward": lambda: train(Lazy(model())),
    "with a hook": with_a_hook,
    "its __init__ on another object": lambda: DDP.__init__(object.__new__(DDP), model(), init_sync=False),
    "in a thread": in_a_thread,
    "replicate": lambda: train(importlib.import_module("torch.distributed._composable").replicate(model())),
    "the reducer": lambda: reducer_of(torch.distributed.Reducer),
    "the reducer of C++": lambda: reducer_of(torch._C._distributed_c10d.Reducer),
    "the reducer that the collector finds": lambda: reducer_of(found()),
    "a subclass of the reducer": lambda: reducer_of(type("Mine", (torch.distributed.Reducer,), {})),
    "without its refusal": without_its_refusal,
    "by its base": by_its_base,
    "torch's file under another name": lambda: train(
        copied("torch.nn.parallel.distributed").DistributedDataParallel(model(), init_sync=False)
    ),
    "fully_shard": fully_sharded,
    "FSDP": lambda: train(
        importlib.import_module("torch.distributed.fsdp").FullyShardedDataParallel(
            model(), device_id=torch.device("cpu")
        )
    ),
    "ZeroRedundancyOptimizer": sharded_optimizer,
    "a pipeline": pipeline,
    "tensor parallelism": tensor_parallel,
    "averaged parameters": averaged,
    "Join": joined,
    "honest": honest,
}


def main() -> None:
    """Try them all."""
    register(NoRelay())
    dist.init_process_group("relay", store=HashStore(), rank=0, world_size=2)
    close_reducer()
    for name, disguise in DISGUISES.items():
        try:
            disguise()
            said = "made"
        except Reached:
            said = "made"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"{name} | {said}", flush=True)


if __name__ == "__main__":
    main()
