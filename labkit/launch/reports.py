"""What a learner reads when a run fails: which rank, why, and where every other rank stood."""

from __future__ import annotations

import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.cells import in_cells
from labkit.launch.cgroup import OomCount
from labkit.units import format_bytes

_ECHO = re.compile(
    r"by peer|Read error|Write error|[Tt]imed out|Broken pipe|[Cc]onnection (?:was )?closed|Socket closed"
    r"|remote (?:worker|process)|ncclRemoteError|failed to recv, got 0 bytes|application timeout"
)
"""What torch says on a rank whose only trouble is that another one went away."""

IN_NO_CALL = "in no communication call"
"""What is said of a rank that computes, or sleeps, when the time is up."""


@dataclass(frozen=True)
class RankEnd:
    """How one rank ended, as far as it has.

    Attributes:
        rank: Its rank.
        error: What it raised, as worker.describe_error gives it, or None.
        status: Exit status, negative for a signal, None while it lives.
        returned: Whether its function had returned a value.
        host: Where it ran, "" for this host.
    """

    rank: int
    error: Mapping[str, object] | None
    status: int | None
    returned: bool
    host: str = ""

    @property
    def failed(self) -> bool:
        """Whether this rank did anything but return its value and leave in order."""
        return self.error is not None or (self.status is not None and (self.status != 0 or not self.returned))

    @property
    def says(self) -> tuple[object, object]:
        """Return type and message of its error."""
        return (self.error["type"], self.error["message"]) if self.error is not None else (None, None)

    @property
    def is_echo(self) -> bool:
        """Whether its error only says that another rank went away."""
        return self.error is not None and _ECHO.search(str(self.error["message"])) is not None


def root_cause(ends: Sequence[RankEnd]) -> RankEnd:
    """Return the rank that failed first: its own error, else a death in silence, else the earliest echo."""
    failed = [end for end in ends if end.failed]
    own = [end for end in failed if end.error is not None and not end.is_echo]
    silent = [end for end in failed if end.error is None]
    if own:
        first = min(own, key=_time)
        # The same error everywhere has no first rank worth naming: take the lowest, so that the report repeats.
        return next(end for end in own if end.says == first.says)
    if silent:
        return min(silent, key=lambda end: (end.status == -signal.SIGTERM, end.rank))
    return min(failed, key=_time)


def _time(end: RankEnd) -> float:
    assert end.error is not None
    time = end.error["time"]
    assert isinstance(time, float)
    return time


def describe_end(
    end: RankEnd, stack: str, last_lines: Sequence[str], before: OomCount | None, after: OomCount | None
) -> str:
    """Return how a rank failed: its own traceback, or what its exit status means.

    Args:
        end: The rank.
        stack: Where a fatal signal met it, "" where that is not known.
        last_lines: The end of its output.
        before: Out-of-memory kills when the run began.
        after: The same now.
    """
    if end.error is not None:
        return in_cells(str(end.error["traceback"])).rstrip()
    words = _death_words(end, before, after)
    if stack:
        words += f"\n{stack}"
    if last_lines:
        words += "\nThe last it printed:\n" + "\n".join(f"  {line}" for line in last_lines)
    return words


def headline(end: RankEnd, world_size: int) -> str:
    """Return the first line of the report on the rank that failed first."""
    if end.error is not None:
        message = str(end.error["message"]).strip().split("\n")[0][:300]
        what = f"{end.error['type']}: {message}" if message else str(end.error["type"])
    else:
        assert end.status is not None
        what = short_death(end.status)
    where = f" (host {end.host})" if end.host else ""
    return f"rank {end.rank} of {world_size}{where} failed first: {what}"


def short_death(status: int) -> str:
    """Return what an exit status means in a few words."""
    if status >= 0:
        return f"ended with exit status {status}"
    return f"killed by {_signal_name(-status)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _death_words(end: RankEnd, before: OomCount | None, after: OomCount | None) -> str:
    assert end.status is not None
    when = " after its function had returned" if end.returned else ""
    who = f"rank {end.rank}"
    if end.status >= 0:
        return (
            f"{who} ended with exit status {end.status}{when}, without an exception: "
            "something called os._exit(), or a library ended the process."
        )
    name = _signal_name(-end.status)
    if name == "SIGKILL":
        return f"{who} was killed by SIGKILL{when}. {_memory_words(before, after)}"
    if name == "SIGSEGV":
        return f"{who} was killed by SIGSEGV{when}: a segmentation fault: native code touched memory it does not own."
    if name == "SIGBUS":
        return (
            f"{who} was killed by SIGBUS{when}: memory backed by a file was not there, usually because "
            f"/dev/shm or the temporary folder is full ({_free_words()})."
        )
    return f"{who} was killed by {name}{when}."


def _memory_words(before: OomCount | None, after: OomCount | None) -> str:
    if before is None or after is None:
        return "The system does this when memory runs out; here its count of such kills cannot be read."
    kills = after.kills - before.kills
    if kills > 0:
        return (
            f"{after.keeper} counts {kills} out-of-memory {'kill' if kills == 1 else 'kills'} since the run began: "
            "memory ran out. Use smaller tensors or fewer ranks."
        )
    return f"Memory was not the reason: {after.keeper} counts no out-of-memory kill since the run began."


def _free_words() -> str:
    words = []
    for folder in ("/dev/shm", tempfile.gettempdir()) if sys.platform == "linux" else (tempfile.gettempdir(),):
        try:
            words.append(f"{folder} has {format_bytes(shutil.disk_usage(folder).free)} free")
        except OSError as error:
            words.append(f"{folder}: {error.strerror}")
    return ", ".join(words)


def rank_words(
    rank: int, started: bool, stack: str, sentence: str, cpu_before: float | None, cpu_after: float | None
) -> str:
    """Return where one rank stands: the Python lines, and what it waits for.

    Args:
        rank: The rank.
        started: Whether it had begun at all.
        stack: describe_stack() of where it stands.
        sentence: What it waits for, "" where it waits in no communication.
        cpu_before: CPU seconds it had used a moment ago, None where that is not known.
        cpu_after: CPU seconds it has used now.
    """
    if not started:
        return f"rank {rank} has not begun yet"
    if not sentence:
        busy = cpu_before is not None and cpu_after is not None and cpu_after > cpu_before
        sentence = f"rank {rank} is {IN_NO_CALL}{', it computes' if busy else ''}"
    return f"{sentence}\n{stack}" if stack else f"{sentence} (it gave no Python stack)"


def stack_words(rank: int, words: str, told: bool) -> str:
    """Return the rank_words() of a rank; of one whose sentence was told before, the stack alone."""
    _, newline, stack = words.partition("\n")
    return f"rank {rank}:\n{stack}" if told and newline else words


def failure_message(cause: str, first: RankEnd, ends: Sequence[RankEnd], standing: Mapping[int, str]) -> str:
    """Return the whole report: the failure that came first, then what became of the other ranks.

    Args:
        cause: headline and description of the first failure.
        first: The rank that failed first.
        ends: All ranks.
        standing: For each rank that still ran, where it stood.
    """
    parts = [cause]
    same, other = [], []
    for end in ends:
        if end.failed and end.rank != first.rank:
            if end.error and end.says == first.says:
                same.append(str(end.rank))
            elif end.error:
                line = re.sub(r"^\[\S+\] ", "", str(end.error["message"]).strip().split("\n")[0])[:120]
                how = "then lost its connection" if end.is_echo else "failed later"
                other.append(f"rank {end.rank} {how} ({end.error['type']}: {line})")
            else:
                assert end.status is not None
                other.append(f"rank {end.rank} {short_death(end.status)} too")
    if same:
        parts.append(f"The same on rank{'s' if len(same) > 1 else ''} {', '.join(same)}.")
    if other:
        parts.append("\n".join(other))
    if standing:
        parts.append("Where the other ranks were:\n" + "\n".join(standing.values()))
    return "\n\n".join(parts)
