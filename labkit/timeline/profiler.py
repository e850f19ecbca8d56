"""torch.profiler's record read into a timeline.

Where the profile has GPU kernels they are the COMPUTE and COMMUNICATION lanes and what the CPU did is HOST; without,
the outermost operators are COMPUTE. Communication is what the backend itself marks: NCCL's kernels, and the regions
``gloo:all_reduce`` that gloo's threads record while a collective really runs.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from labkit.errors import ConfigError
from labkit.timeline.span import Lane, Problem
from labkit.timeline.timeline import Timeline

_NCCL_KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
    "alltoall": "all_to_all",
}


class Profile(Protocol):
    """A finished torch.profiler.profile."""

    def export_chrome_trace(self, path: str) -> Any:
        """Write the profile as Chrome JSON."""


def read_profile(source: Profile | str | Path, rank: int | None = None) -> Timeline:
    """Return one rank's profile as a timeline, time 0 at its first span.

    Args:
        source: A ``torch.profiler.profile`` after its ``with`` block, or the path of what its
            ``export_chrome_trace`` wrote (``.json`` or ``.json.gz``).
        rank: Its rank; None takes the one the profile names, else 0.
    Raises:
        ConfigError: If the file is not a profile, or holds nothing that ran.
    """
    return read_profiles([source], None if rank is None else [rank])


def read_profiles(sources: Sequence[Profile | str | Path], ranks: Sequence[int] | None = None) -> Timeline:
    """Return the profiles of several ranks of one host on a common time axis.

    Raises:
        ConfigError: As :func:`read_profile`; or if two profiles name the same rank.
    """
    traces = [_load(source) for source in sources]
    found = (
        [int((trace.get("distributedInfo") or {}).get("rank", 0)) for trace in traces] if ranks is None else list(ranks)
    )
    if len(found) != len(traces) or len(set(found)) != len(found):
        raise ConfigError(f"{len(traces)} profiles are of ranks {found}; give one profile for each rank.")
    worlds = [int((trace.get("distributedInfo") or {}).get("world_size", 0)) for trace in traces]
    # Microseconds as float64: a difference to the earliest event keeps nanoseconds exact, an absolute date would not.
    bases = [int(trace.get("baseTimeNanoseconds", 0)) for trace in traces]
    rows: list[tuple[int, int, float, float, str, str]] = []
    problems: list[Problem] = []
    for trace, rank, base in zip(traces, found, bases, strict=True):
        shift_us = (base - min(bases)) / 1000
        spans, left_out = _spans(trace)
        rows += [(rank, lane, ts + shift_us, dur, name, kind) for lane, ts, dur, name, kind in spans]
        if left_out:
            noun = "event" if left_out == 1 else "events"
            text = f"{left_out} {noun} of rank {rank}'s profile had no begin or ended before that; left out."
            problems.append(Problem("left_out", rank, text))
    if not rows:
        raise ConfigError("The profile is empty; record at least one operator.")
    first = min(row[2] for row in rows)
    columns = [list(column) for column in zip(*rows, strict=True)]
    rank_of, lane, begin, length, name, kind = columns
    start_ns = np.rint((np.array(begin) - first) * 1000).astype(np.int64)
    end_ns = start_ns + np.rint(np.array(length) * 1000).astype(np.int64)
    clock = {
        "rank": np.array(found),
        "method": np.array(["torch.profiler"] * len(found)),
        "err_ns": np.full(len(found), 0 if len(found) == 1 else 1000, dtype=np.int64),
    }
    timeline = Timeline(
        rank_of, lane, start_ns, end_ns, name, kind, tables={"clock": clock}, num_ranks=max(*worlds, max(found) + 1)
    )
    timeline.problems += (*_absent(timeline.num_ranks, found), *problems)
    return timeline


def _absent(num_ranks: int, found: Sequence[int]) -> list[Problem]:
    """Return that ranks of a job are without a profile, where there are some."""
    missing = num_ranks - len(found)
    if missing <= 0:
        return []
    noun, verb = ("rank", "is") if missing == 1 else ("ranks", "are")
    here = f"rank {found[0]}" if len(found) == 1 else f"{len(found)} ranks"
    return [
        Problem("absent", -1, f"Profiles of {here}, of {num_ranks}: {missing} {noun} {verb} not in them, not idle.")
    ]


def _load(source: Profile | str | Path) -> dict[str, Any]:
    if not isinstance(source, str | Path):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "profile.json"
            source.export_chrome_trace(str(path))
            return _load(path)
    path = Path(source)
    try:
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        trace = json.loads(text)
    except (EOFError, zlib.error) as error:
        raise ConfigError(
            f"{path.name} is torn: the compressed file ends too early ({error}). Copy it again."
        ) from error
    except (ValueError, gzip.BadGzipFile) as error:
        raise ConfigError(f"{path.name} is not a Chrome trace in JSON ({error}).") from error
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise ConfigError(f"{path.name} has no traceEvents; write it with profile.export_chrome_trace.")
    return trace


_OLDER = {
    "Kernel": "kernel", "Operator": "cpu_op", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "cpu_op": "cpu_op",
    "user_annotation": "user_annotation", "User_annotation": "user_annotation",
}  # fmt: skip
"""Categories as Kineto called them before torch 1.11 -> as it calls them now."""


def _spans(trace: dict[str, Any]) -> tuple[list[tuple[int, float, float, str, str]], int]:
    """Return (lane, begin in us, length in us, name, kind) of what ran, in order of time, and how much is unusable."""
    events = [event for event in trace["traceEvents"] if isinstance(event, dict) and event.get("ph") == "X"]
    complete = [
        event | {"cat": _OLDER.get(str(event.get("cat")), event.get("cat"))} for event in events if _is_whole(event)
    ]
    on_gpu = any(event.get("cat") == "kernel" for event in complete)
    cpu = Lane.HOST if on_gpu else Lane.COMPUTE
    found = []
    operators = [event for event in complete if event.get("cat") == "cpu_op"]
    for event in _outermost(operators):
        is_call = event["name"].startswith("c10d::")
        found.append((int(Lane.HOST if is_call else cpu), event, "call" if is_call else "op"))
    for event in complete:
        name, category = str(event["name"]), event.get("cat")
        if category == "kernel":
            kind = _nccl_kind(name)
            found.append((int(Lane.COMMUNICATION if kind else Lane.COMPUTE), event, kind or "kernel"))
        elif category in ("gpu_memcpy", "gpu_memset"):
            found.append((int(Lane.COMPUTE), event, str(category)))
        elif category == "user_annotation":
            kind = name.removeprefix("gloo:") if name.startswith("gloo:") else ""
            found.append((int(Lane.COMMUNICATION if kind else Lane.REGION), event, kind or "span"))
    found.sort(key=lambda item: float(item[1]["ts"]))
    spans = [(lane, float(e["ts"]), float(e.get("dur", 0)), str(e["name"]), kind) for lane, e, kind in found]
    return spans, len(events) - len(complete)


def _is_whole(event: dict[str, Any]) -> bool:
    """Return whether an event has a name, a begin and an end that does not come before it."""
    numbers = (event.get("ts"), event.get("dur", 0))
    return "name" in event and all(isinstance(one, int | float) for one in numbers) and float(numbers[1] or 0) >= 0


def _outermost(operators: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the operators that no other operator of the same thread encloses."""
    kept: list[dict[str, Any]] = []
    reach: dict[Any, float] = {}
    for event in sorted(operators, key=lambda e: (float(e["ts"]), -float(e.get("dur", 0)))):
        thread = (event.get("pid"), event.get("tid"))
        begin, end = float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0))
        if begin >= reach.get(thread, -np.inf):
            kept.append(event)
            reach[thread] = end
    return kept


def _nccl_kind(kernel: str) -> str:
    match = re.search(r"nccl\w*?_(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AlltoAll)", kernel, re.I)
    if match is None:
        return "nccl" if "nccl" in kernel.lower() else ""
    return _NCCL_KINDS[match[1].lower()]
