"""virtual(): the world of N accelerators in one process and in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.errors import ConfigError
from labkit.failures.records import Failure, check
from labkit.failures.settings import Disk, Restarts, check_nodes
from labkit.hardware import Device, Hardware, Link
from labkit.launch.local import Order
from labkit.launch.rank import set_span_recorder
from labkit.scripts import Script
from labkit.simulator.cluster import Algorithm, Cluster, describe
from labkit.simulator.failure_plan import FailurePlan
from labkit.simulator.fold import Fold, fold_of
from labkit.simulator.regions import span
from labkit.simulator.run import simulate
from labkit.worlds import Run


@dataclass(frozen=True)
class VirtualWorld:
    """A cluster of accelerators that are not there; made by virtual().

    Attributes:
        cluster: What it is made of.
        cuda: Whether ranks find their accelerators as CUDA devices; None is for scripts alone.
        failure_plan: What breaks, and how ranks are started again; None where nothing may.
        shapes: Whether tensors on those have no values.
        fold: Which ranks do not run, because others do the same; None where all run.
    """

    cluster: Cluster
    cuda: bool | None = None
    failure_plan: FailurePlan | None = None
    shapes: bool = False
    fold: Fold | None = None

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.cluster.world_size

    def launch(self, order: Order) -> Run[Any]:
        """Return what came of the order in virtual time (see run()); stall has no meaning here."""
        is_script = isinstance(order.function, Script)
        set_span_recorder(span)
        try:
            outcome = simulate(
                order.function, order.args, self.cluster, timeout=order.timeout, seed=order.seed, init=order.init,
                echo=order.echo, cuda=is_script or self.shapes if self.cuda is None else self.cuda,
                failure_plan=self.failure_plan, shapes=self.shapes, fold=self.fold,
            )  # fmt: skip
        finally:
            set_span_recorder(None)
        backend = f"virtual/{self.cluster.device.name}"
        return Run(outcome.results, outcome.timeline, outcome.output, self, backend, outcome.elapsed_ns)

    def __repr__(self) -> str:
        cluster = self.cluster
        nodes = "" if cluster.num_nodes == 1 else f" in {cluster.num_nodes} nodes over {cluster.nic.name}"
        return f"VirtualWorld({cluster.world_size} x {cluster.device.name}, {cluster.link.name}{nodes})"


def virtual(
    world_size: int,
    *,
    gpu: str | Device | Hardware = "h100",
    link: str | Link | None = None,
    gpus_per_node: int | None = None,
    nic: str | Link = "ib_ndr",
    nics_per_node: int | None = None,
    slow: Mapping[int, float] | None = None,
    slow_links: Mapping[tuple[int, int], float] | None = None,
    jitter: float = 0.0,
    seed: int = 0,
    algorithm: Algorithm = "auto",
    memory: int | str | None = None,
    join_operators: bool = False,
    stream: bool | None = None,
    cuda: bool | None = None,
    failures: Sequence[Failure] | None = None,
    restarts: int | Restarts | None = None,
    disk: Disk | None = None,
    shapes: bool = False,
    fold: int | tuple[int, int] | str | None = None,
) -> VirtualWorld:
    """Return a world of N accelerators in this process and in virtual time.

    The function runs unmodified: its tensors are real and its results those of gloo, its time is what the operators and
    messages would cost on this hardware, and it is the same in every run. Each rank has what a process has of its own:
    modules that are not installed, globals, process groups, output, loggers, environment, current directory. The
    ``timeout`` of labkit.run counts real seconds; a deadlock is known at once.

    Threads that a rank starts have its rank, and a clock each; their locks, events, queues and pools wait in virtual
    time, and a race between them has one outcome. ``torch.distributed.rpc`` is a subset in Python, in virtual time too:
    ``init_rpc``, ``shutdown``, ``rpc_sync``, ``rpc_async``, ``remote``, ``RRef``, ``functions.async_execution``,
    ``get_worker_info`` and ``torch.futures`` (labkit.simulator.rpc says what differs from torch's).

    What a rank cannot do here: start processes (DataLoader: num_workers=0), or use ``torch.distributed.autograd``,
    DistributedOptimizer and RemoteModule. Locks made before the run cannot be waited for in virtual time.
    All ranks share installed packages: if one keeps a rank's process group, another rank's call on it raises and says
    where it was found. Any other state that a package keeps per rank would be shared, too (for torch and Accelerate it
    is known, and kept apart).

    Args:
        world_size: Number of ranks, 1 to 4096.
        gpu: "v100", "a100", "h100", "h200", "b200", "t4", "l4", "rtx4090", "cpu", a labkit.hardware.Device, or what
            `labkit calibrate` measured of a host: ``labkit.hardware.load("host.json")``.
        link: What connects accelerators of a node, such as "nvlink4" or "pcie5"; None is what the device is sold with.
            With "ethernet_25g" and its like every accelerator is a host of its own.
        gpus_per_node: Accelerators in a node, 8 where nothing else follows from link.
        nic: What connects nodes, such as "ib_ndr" or "ethernet_100g".
        nics_per_node: Network cards of a node; None gives every accelerator its own.
        slow: Rank -> factor by which everything it computes takes longer: ``{3: 2.0}`` makes rank 3 a straggler.
        slow_links: (source, destination) -> factor by which bytes take longer from one to the other.
        jitter: Each operator and message takes up to this share longer, drawn from seed.
        seed: Seed of the jitter.
        algorithm: How collectives are costed: "ring", "tree", "direct", "nvls" (the switch adds), or "auto" for what
            NCCL would choose.
        memory: What each accelerator holds, bytes or "16 GB"; None is what the device is sold with. A tensor that does
            not fit raises torch.OutOfMemoryError in its rank, with a list of what fills the memory.
        join_operators: Show operators that follow each other without a gap as one span, "operators". Hundreds of ranks
            run millions of operators; times, memory and communication are the same either way.
        stream: Let each accelerator compute beside the program that issues its kernels: a launch costs the program its
            own time, the kernel runs when those before it on its stream have, and the two meet where the program
            synchronises or asks for a value. False lets a rank do one thing after the other, each for no less than a
            launch. None means yes where ranks find CUDA devices.
        cuda: Let ranks find their accelerators as CUDA devices: ``torch.cuda.is_available()``, ``.to("cuda:1")``,
            events, memory, autocast. What is on the host then costs neither time nor memory. None means yes for scripts
            (labkit.script) and no for functions.
        failures: What breaks and when, records of labkit.failures: ``[Kill(3, step=100)]``.
        restarts: How often all ranks are started again after one has failed, as torchrun's agents do; a
            labkit.failures.Restarts says how long that takes.
        disk: What ranks write to (labkit.failures.Disk). With any of these three, they begin in a folder of their own,
            whose files are lost with a power cut unless they were synced.
        shapes: Compute no values of what is on the CUDA devices: tensors have shapes, dtypes and bytes there, so that
            models run that no host has room for. Time and memory are the same. A value that the program asks for is a
            stand-in, and ``timeline.problems`` names each line that read one or decided something by it.
        fold: Run two data-parallel replicas, and take the others to do the same: the ranks of a replica that follow
            each other, 8, or those and the number of replicas, (8, 64) (labkit.simulator.fold). For shapes only.

    Raises:
        ConfigError: If a number or a name is not allowed.
    """
    if shapes and cuda is False:
        raise ConfigError("shapes=True leaves out the values on CUDA devices, and cuda=False has none; leave one out.")
    different = [name for name, value in (("slow", slow), ("slow_links", slow_links), ("jitter", jitter)) if value]
    different += [name for name, value in (("failures", failures), ("restarts", restarts), ("disk", disk)) if value]
    if fold is not None and (different or not shapes):
        what = f"{different[0]} makes ranks differ" if different else "values make ranks differ; give shapes=True"
        raise ConfigError(f"fold={fold!r} takes ranks to do the same, and {what}. Leave one out.")
    cluster = describe(
        world_size, gpu=gpu, link=link, gpus_per_node=gpus_per_node, nic=nic, nics_per_node=nics_per_node,
        slow=slow, slow_links=slow_links, jitter=jitter, seed=seed, algorithm=algorithm, memory=memory,
        join_operators=join_operators, stream=stream,
    )  # fmt: skip
    if failures is None and restarts is None and disk is None:
        return VirtualWorld(cluster, cuda, shapes=shapes, fold=fold_of(world_size, fold))
    check(planned := tuple(failures or ()), cluster.world_size, cluster.num_nodes)
    again = restarts if isinstance(restarts, Restarts) else Restarts(0 if restarts is None else restarts)
    check_nodes(again, disk, cluster.num_nodes, even=world_size % cluster.gpus_per_node == 0)
    return VirtualWorld(cluster, cuda, FailurePlan(planned, again, disk or Disk()), shapes)
