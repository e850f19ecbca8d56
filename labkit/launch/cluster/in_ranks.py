"""Ranks that torchrun or srun started: where they meet, and one record of all of them.

Each rank records for itself. At the end all give their records to rank 0 through the store they meet at; ranks of other
hosts have compared their clock with that of rank 0's host before and after.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError
from labkit.launch import rank as rank_module
from labkit.launch import recording
from labkit.launch.cluster.addresses import address_on
from labkit.launch.cluster.clocks import FIRST, Clock, Comparison, compare, serve_clock
from labkit.launch.cluster.link import answer, connect
from labkit.launch.recording import RankLog, assemble, read_log
from labkit.timeline import Timeline

_PIECE = 4 << 20
"""What the store takes at once."""
_WAIT_SECONDS = 60.0
_times = count()


@dataclass(frozen=True)
class Placed:
    """Where this process stands among all ranks.

    Attributes:
        rank: Its rank.
        world_size: How many there are.
        host: Which host it is on, counted from 0.
        local_rank: Which of that host's ranks it is.
        ranks_here: How many that host has.
    """

    rank: int
    world_size: int
    host: int
    local_rank: int
    ranks_here: int


def placed() -> Placed:
    """Return where this process stands, by torchrun's variables; srun's are translated into them first.

    Raises:
        ConfigError: If neither started it.
    """
    if "RANK" not in os.environ and "SLURM_PROCID" in os.environ:
        _as_torchrun()
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ConfigError(
            "labkit.cluster() without an address is for programs started by torchrun or srun, and this one was not "
            f'({", ".join(missing)} not set); name a Dask scheduler: labkit.cluster("tls://HOST:8786").'
        )
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    host = int(os.environ.get("GROUP_RANK", rank // ranks_here))
    return Placed(rank, world_size, host, int(os.environ.get("LOCAL_RANK", "0")), ranks_here)


def _as_torchrun() -> None:
    slurm = os.environ
    nodes = ["scontrol", "show", "hostnames", slurm.get("SLURM_STEP_NODELIST", slurm.get("SLURM_JOB_NODELIST", ""))]
    first = "127.0.0.1"
    if int(slurm.get("SLURM_NNODES", "1")) > 1:
        first = subprocess.run(nodes, capture_output=True, text=True, check=True).stdout.split()[0]
    per_node = (
        slurm.get("SLURM_STEP_TASKS_PER_NODE", slurm.get("SLURM_NTASKS", "1")).partition("(")[0].partition(",")[0]
    )
    os.environ.update(
        RANK=slurm["SLURM_PROCID"],
        LOCAL_RANK=slurm["SLURM_LOCALID"],
        GROUP_RANK=slurm["SLURM_NODEID"],
        WORLD_SIZE=slurm["SLURM_NTASKS"],
        LOCAL_WORLD_SIZE=per_node,
        MASTER_ADDR=slurm.get("MASTER_ADDR", first),
        MASTER_PORT=slurm.get("MASTER_PORT", str(20_000 + int(slurm.get("SLURM_JOB_ID", "0")) % 10_000)),
    )


class Meeting:
    """All ranks of a program, met at the store that torchrun or rank 0 hosts."""

    def __init__(self) -> None:
        """Meet the others.

        Raises:
            ConfigError: If neither torchrun nor srun started this process.
        """
        from labkit.torch_port.stores import environment_store

        self.here = placed()
        self._store = environment_store(f"labkit/{next(_times)}")

    def tell(self, name: str, value: object) -> None:
        """Leave a value for others under a name."""
        data = zlib.compress(pickle.dumps(value, protocol=5), 1)
        pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
        for number, piece in enumerate(pieces):
            self._store.set(f"{name}/{number}", piece)  # type: ignore[arg-type]  # it takes bytes too
        self._store.set(name, str(len(pieces)))

    def hear(self, name: str, seconds: float = _WAIT_SECONDS) -> Any:
        """Return the value under a name, waiting for it.

        Raises:
            RuntimeError: If it does not come in time.
        """
        self._store.wait([name], timedelta(seconds=seconds))
        num_pieces = int(self._store.get(name))
        data = b"".join(self._store.get(f"{name}/{number}") for number in range(num_pieces))
        return pickle.loads(zlib.decompress(data))

    def gather(self, name: str, value: object) -> list[Any] | None:
        """Return everybody's value on rank 0, None on all others, which stay until rank 0 has them all."""
        ranks = range(self.here.world_size)
        self.tell(f"{name}/{self.here.rank}", value)
        if self.here.rank != 0:
            self.hear(f"{name}/taken")
            self._store.set(f"{name}/left/{self.here.rank}", "1")
            return None
        found = [self.hear(f"{name}/{rank}") for rank in ranks]
        self.tell(f"{name}/taken", True)
        # Without torchrun this process hosts the store: it must not be gone before the others have read.
        self._store.wait([f"{name}/left/{rank}" for rank in ranks[1:]], timedelta(seconds=_WAIT_SECONDS))
        return found


class ClocksOfRanks:
    """Compares this rank's clock with that of rank 0's host."""

    def __init__(self, meeting: Meeting) -> None:
        """Compare once; rank 0 answers from now on."""
        self._meeting, here = meeting, meeting.here
        self._asks = here.host != 0 and here.local_rank == 0
        if here.rank == 0:
            secret = os.urandom(32)
            listener = socket.create_server((_address_of_rank_0(), 0), backlog=512)
            threading.Thread(target=_answer_all, args=(listener, secret), daemon=True).start()
            meeting.tell("clock", (*listener.getsockname()[:2], secret))
            self._listener = listener
        self._before = self._compared("before")

    def clock(self) -> Clock:
        """Return how this host's clock is read as rank 0's, after comparing again."""
        if self._before is None:
            return FIRST
        return Clock(self._before, self._compared("after"))

    def _compared(self, when: str) -> Comparison | None:
        here = self._meeting.here
        if here.host == 0:
            return None
        name = f"clock/{here.host}/{when}"
        if self._asks:
            address, port, secret = self._meeting.hear("clock")
            with connect(address, port, secret, None, 10.0) as sock:
                self._meeting.tell(name, compare(sock))
        found = self._meeting.hear(name)
        assert isinstance(found, Comparison)
        return found

    def close(self) -> None:
        """Answer no more."""
        if self._meeting.here.rank == 0:
            self._listener.close()


def _answer_all(listener: socket.socket, secret: bytes) -> None:
    def serve(sock: socket.socket) -> None:
        try:
            sock = answer(sock, secret, None)
        except OSError:
            return
        serve_clock(sock)

    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(sock,), daemon=True).start()


def _address_of_rank_0() -> str:
    """Return the address of the interface that gloo or NCCL were told to use, else the one ranks meet at."""
    named = os.environ.get("GLOO_SOCKET_IFNAME") or os.environ.get("NCCL_SOCKET_IFNAME", "")
    if named and "," not in named and named[0] not in "=^":
        return address_on(named)
    address = socket.gethostbyname(os.environ["MASTER_ADDR"])
    try:
        with socket.create_server((address, 0)):
            return address
    except OSError:  # an address that is not this host's own: a service in front of it
        return socket.gethostbyname(socket.gethostname())


@dataclass
class RecordOfRanks:
    """What came of recording all ranks.

    Attributes:
        timeline: On rank 0 after the block, None on all others.
    """

    timeline: Timeline | None = None


@contextmanager
def recorded_ranks(meeting: Meeting) -> Iterator[RecordOfRanks]:
    """Record the communication and spans of the block on every rank, and bring all together on rank 0.

    Groups that exist before it are not recorded.
    """
    here, record = meeting.here, RecordOfRanks()
    clocks = ClocksOfRanks(meeting)
    with tempfile.TemporaryDirectory(prefix="labkit-record-") as folder:
        path = Path(folder) / f"rank{here.rank}.log"
        recording.install(path, here.rank)
        rank_module.set_span_recorder(recording.span)
        try:
            yield record
        finally:
            rank_module.set_span_recorder(None)
            recording.close()
            log = read_log(path)
    logs = meeting.gather("log", clocks.clock().read(log, socket.gethostname()))
    clocks.close()
    if logs is not None:
        record.timeline = assemble([log for log in logs if isinstance(log, RankLog)])


@contextmanager
def recorded_to(path: str) -> Iterator[None]:
    """Write the timeline of all ranks' block to a file on rank 0, as ``LABKIT_RECORD`` asks; "" records nothing."""
    if not path:
        yield
        return
    if Path(path).suffix not in (".npz", ".json"):
        raise ConfigError(f"LABKIT_RECORD={path!r} does not name a timeline; use a path that ends in .npz or .json.")
    meeting = Meeting()
    with recorded_ranks(meeting) as record:
        yield
    if record.timeline is not None:
        record.timeline.save(path)
        print(f"[labkit] the timeline of {record.timeline.num_ranks} ranks is in {path}", flush=True)
