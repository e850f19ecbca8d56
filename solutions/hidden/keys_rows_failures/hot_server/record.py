"""Records the runs of `hot_server`: three servers with equally many keys, and one key that every batch has.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.distributed import rpc

import labkit
from labkit.servers.server import start_rpc

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "keys_rows_failures" / "hot_server"
SERVERS, WORKERS, STEPS, KEYS, ROW_MS = 3, 4, 4, 60, 1.0
_KEPT = ("call", "wait", "clock")


class Setting(NamedTuple):
    """What is drawn differently in the two recordings: the hot key, the slow worker's rank, a seed for the others."""

    hot: int
    slow: int
    seed: int


SHOWN, KEPT_BACK = Setting(17, 4, 3), Setting(40, 6, 16)


class Rows:
    """Serves rows one call at a time, a millisecond each."""

    def __init__(self) -> None:
        """Serve nobody yet."""
        self.lock = threading.Lock()

    def serve(self, verb: str, worker: int, keys: list[int]) -> None:
        """Take the time that these rows take."""
        with self.lock, labkit.span(f"{verb} of rank {worker}: {', '.join(map(str, keys))}"):
            time.sleep(ROW_MS * len(keys) / 1000)


def batch(setting: Setting, worker: int, step: int) -> list[int]:
    """Return the keys of one worker's batch: the hot one, and four others."""
    draw = torch.Generator().manual_seed(1000 * setting.seed + 10 * worker + step)
    others = [key for key in torch.randperm(KEYS, generator=draw).tolist() if key != setting.hot]
    return sorted([setting.hot, *others[:4]])


def work(servers: list[Any], setting: Setting, worker: int) -> None:
    """Pull, compute and push some batches."""
    for step in range(STEPS):
        keys = batch(setting, worker, step)
        for verb in ("pull", "push"):
            homes = {home: [key for key in keys if key % SERVERS == home] for home in range(SERVERS)}
            calls = [servers[home].rpc_async().serve(verb, worker, own) for home, own in homes.items() if own]
            for call in calls:
                call.wait()
            if verb == "pull":
                with labkit.span(f"batch {step}"):
                    time.sleep((5 if worker == setting.slow else 3) / 1000)


def train(setting: Setting) -> None:
    """Let all workers train; ranks 0 to 2 are servers."""
    rank, _ = start_rpc()
    if rank == 0:
        servers = [rpc.remote(f"rank{home}", Rows) for home in range(SERVERS)]
        for server in servers:
            server.rpc_sync().serve("start", 0, [])
        calls = [
            rpc.rpc_async(f"rank{worker}", work, args=(servers, setting, worker))
            for worker in range(SERVERS, SERVERS + WORKERS)
        ]
        for call in calls:
            call.wait()
    rpc.shutdown()


def record(setting: Setting) -> labkit.Timeline:
    """Return the run, without what a learner does not look at."""
    timeline = labkit.run(train, setting, on=labkit.virtual(SERVERS + WORKERS), init=False, echo=False).timeline
    assert timeline is not None
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


def drawn(draw: random.Random) -> tuple[labkit.Timeline, dict[str, Any]]:
    """Return a student's own run, and what its key says."""
    setting = Setting(draw.randrange(KEYS), SERVERS + draw.randrange(WORKERS), draw.randrange(1000))
    answers = {"server": setting.hot % SERVERS, "key": setting.hot, "cause": "every batch has this key"}
    return record(setting), {"answers": answers}


if __name__ == "__main__":
    record(SHOWN).save(LABKITS / "recording.json")
    record(KEPT_BACK).save(HERE / "recording.json")
