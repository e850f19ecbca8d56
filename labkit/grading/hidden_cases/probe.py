"""Hidden cases, the trusted side: starts ranks, gives them inputs, serves the relay, collects results.

It holds no expected value and loads no torch; results stay bytes here, to be read by the oracle process.
"""

from __future__ import annotations

import itertools
import os
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.checks.wire import Wire
from labkit.errors import EnvironmentProblem
from labkit.grading.frames import Channel, Frame, FrameError
from labkit.grading.hidden_cases.oracle import HiddenCase
from labkit.grading.hidden_cases.probe_words import exit_words, failure_fields, gone_words, line, sentence
from labkit.grading.limits import Limits
from labkit.grading.preloaded.template import Template, TemplateGoneError
from labkit.grading.relay.calls import Call
from labkit.grading.relay.records import RelayError
from labkit.grading.relay.server import Relay
from labkit.grading.sandbox.environments import submission_environment
from labkit.grading.sandbox.gpus import gpu_environment
from labkit.grading.sandbox.memory_watch import MemoryWatch
from labkit.grading.sandbox.process_tree import any_runs_below
from labkit.grading.sandbox.rank_namespaces import NOT_MADE
from labkit.grading.sandbox.view import SCRATCH
from labkit.grading.score import rank_seed

_QUIET_SECONDS = 2.0
"""How long nothing may come, and no thread run, before ranks are stuck of which threads are not seen to wait."""
_serials = itertools.count()


@dataclass(frozen=True)
class Outcome:
    """What a hidden case brought.

    Attributes:
        results: For each rank the encoded result; empty where there is a failure.
        failure: The fields of a labkit.checks Failure, or None.
        wire: What the relay saw.
        output: What each rank printed, cut.
        claimed_seconds: How long the submission's own code took, as its slowest rank says; for benchmarks only.
        calls: What each rank called, for a picture.
    """

    results: tuple[bytes, ...]
    failure: Mapping[str, Any] | None
    wire: Wire
    output: tuple[str, ...] = ()
    claimed_seconds: float = 0.0
    calls: tuple[Call, ...] = ()


@dataclass(eq=False)
class _Rank:
    """One rank of the running case."""

    number: int
    relay: Channel
    jobs: Channel
    output_fd: int
    output: bytearray = field(default_factory=bytearray)
    num_output_bytes: int = 0
    output_ended: bool = False
    pid: int = 0
    exit_code: int | None = None
    result: bytes | None = None
    seconds: float = 0.0
    failure: dict[str, Any] | None = None


class _CaseOverError(Exception):
    """The case is over; `failure` says why."""

    def __init__(self, kind: str, rank: int | None, message: str, detail: str = "", error: str = "") -> None:
        super().__init__(message)
        self.failure = {"kind": kind, "rank": rank, "message": message, "detail": detail, "error": error}


class NoGpuError(Exception):
    """A rank could not use the GPU it was given, so a case says nothing of the answer."""


class CaseRun:
    """One case on fresh processes, one for each rank.

    Args:
        template: Where ranks are forked.
        exercise_id: The exercise whose driver is run.
        cells: Given and exercise cells: id, name, kind, source.
        case: Its inputs.
        secret: What the seeds of the ranks' random generators follow from.
        work: A folder; each rank gets a new one in it.
        seconds: Time it may take.
        limits: What ranks may use.
    """

    def __init__(
        self,
        template: Template,
        exercise_id: str,
        cells: Sequence[Mapping[str, str]],
        case: HiddenCase,
        secret: int,
        work: Path,
        seconds: float,
        limits: Limits,
    ) -> None:
        self._template = template
        self._serial = next(_serials)
        self._case = case
        self._limits = limits
        self._seconds = seconds
        self._work = work
        self._job: dict[str, Any] = {"exercise": exercise_id, "world_size": case.world_size, "cells": list(cells)}
        self._secret = secret
        self._relay = Relay(case.world_size, limits)
        self._selector = selectors.DefaultSelector()
        self._ranks: list[_Rank] = []
        self._by_pid: dict[int, _Rank] = {}

    def run(self) -> Outcome:
        """Return what the case brought; everything it started has ended by then."""
        deadline = time.monotonic() + self._seconds
        failure: dict[str, Any] | None = None
        most = self._limits.case_memory_bytes
        watch = MemoryWatch(lambda: [self._template.first_pid], most, self._template.end_ranks)
        try:
            self._selector.register(self._template.channel, selectors.EVENT_READ, None)
            with watch:
                for number in range(self._case.world_size):
                    self._start(number)
                self._serve(deadline)
        except _CaseOverError as stop:
            failure = stop.failure
        except RelayError as error:
            failure = {
                "kind": "exception",
                "rank": error.rank,
                "message": sentence(error.text),
                "detail": "",
                "error": "RuntimeError",  # what torch.distributed raises for the same
            }
        except TemplateGoneError:
            failure = gone_words()
        finally:
            self._close()
        failure = failure or self._first_failure()
        if watch.exceeded:
            words = f"The ranks took more than the {most / 1e9:.1f} GB of memory they may have together."
            failure = {"kind": "died", "rank": None, "message": words, "detail": "", "error": ""}
        results = () if failure else tuple(rank.result or b"" for rank in self._ranks)
        output = tuple(rank.output.decode("utf-8", "replace") for rank in self._ranks)
        seconds = max(rank.seconds for rank in self._ranks)
        return Outcome(results, failure, self._relay.wire(), output, seconds, self._relay.calls())

    # ---- start and end

    def _start(self, number: int) -> None:
        relay_ours, relay_theirs = socket.socketpair()
        jobs_ours, jobs_theirs = socket.socketpair()
        output_read, output_write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(output_read, False)
        limits = self._limits
        work = Path(SCRATCH) if self._template.divides else self._work / f"rank{number}"
        if not self._template.divides:
            work.mkdir(parents=True, exist_ok=True)
        request = {
            "rank": number,
            "case": self._serial,
            "cpu_seconds": limits.rank_cpu_seconds,
            "file_bytes": limits.rank_file_bytes,
            "memory_bytes": limits.rank_memory_bytes,
            "processes": limits.rank_processes,
            "environment": submission_environment(work) | gpu_environment(self._template.gpu),
            "on_gpu": bool(self._template.gpu),
            "work": str(work),
        }
        rank = _Rank(
            number,
            Channel(relay_ours, max_header=1 << 16, max_payload=limits.message_bytes),
            Channel(jobs_ours, max_header=1 << 20, max_payload=limits.result_bytes),
            output_read,
        )
        self._ranks.append(rank)
        self._selector.register(rank.relay, selectors.EVENT_READ, rank)
        self._selector.register(rank.jobs, selectors.EVENT_READ, rank)
        self._selector.register(output_read, selectors.EVENT_READ, rank)
        try:
            self._template.fork(request, relay_theirs, jobs_theirs, output_write)
        finally:
            relay_theirs.close()
            jobs_theirs.close()
            os.close(output_write)
        job = {**self._job, "rank": number, "seed": self._seed(number), "on_gpu": bool(self._template.gpu)}
        rank.jobs.send(job, self._case.inputs[number])

    def _seed(self, number: int) -> int:
        return rank_seed(self._secret, self._job["exercise"], self._case.index, number)

    def _close(self) -> None:
        with suppress(TemplateGoneError):
            self._template.end_ranks()
        for rank in self._ranks:
            self._read_output(rank, final=True)
            rank.relay.close()
            rank.jobs.close()
            os.close(rank.output_fd)
        self._selector.close()

    # ---- the loop

    def _serve(self, deadline: float) -> None:
        quiet_since = time.monotonic()
        while any(rank.result is None and rank.failure is None for rank in self._ranks):
            now = time.monotonic()
            if now >= deadline:
                raise self._timeout()
            self._watch_writers()
            wait = min(deadline - now, 0.2)
            events = self._selector.select(wait)
            if events:
                quiet_since = time.monotonic()
            for key, mask in events:
                self._event(key, mask)
            if events and self._selector.select(0):
                continue
            self._answer()
            if self._relay.all_ended:
                continue
            stuck = self._relay.settled
            if self._relay.settled_but_for_threads:
                if any_runs_below(self._template.first_pid):
                    quiet_since = time.monotonic()
                stuck = time.monotonic() - quiet_since > _QUIET_SECONDS
            if stuck:
                self._unstick()

    def _event(self, key: selectors.SelectorKey, mask: int) -> None:
        rank: _Rank | None = key.data
        if rank is None:
            self._template_says()
        elif key.fileobj is rank.relay:
            if mask & selectors.EVENT_WRITE:
                rank.relay.flush()
            if mask & selectors.EVENT_READ:
                self._from_relay(rank)
        elif key.fileobj is rank.jobs:
            if mask & selectors.EVENT_WRITE:
                rank.jobs.flush()
            if mask & selectors.EVENT_READ:
                self._from_jobs(rank)
        else:
            self._read_output(rank)

    def _watch_writers(self) -> None:
        for rank in self._ranks:
            for channel in (rank.relay, rank.jobs):
                if not channel.closed:
                    mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.wants_to_write else 0)
                    if self._selector.get_key(channel).events != mask:
                        self._selector.modify(channel, mask, rank)

    def _frames(self, rank: _Rank, channel: Channel) -> list[Frame]:
        was_closed = channel.closed
        if was_closed:  # an event of this round may be about what an earlier one has closed
            return []
        try:
            return channel.receive()
        except FrameError as error:
            raise _CaseOverError(
                "died", rank.number, f"Rank {rank.number} broke off the connection: {error}."
            ) from None
        finally:
            if channel.closed:
                self._selector.unregister(channel)

    def _from_relay(self, rank: _Rank) -> None:
        for frame in self._frames(rank, rank.relay):
            self._relay.receive(rank.number, frame.header, bytes(frame.payload))
        self._answer()

    def _from_jobs(self, rank: _Rank) -> None:
        for frame in self._frames(rank, rank.jobs):
            if rank.result is not None or rank.failure is not None:
                continue
            failure, seconds = frame.header.get("failure"), frame.header.get("seconds")
            rank.seconds = seconds if isinstance(seconds, float) else 0.0
            if failure is None:
                rank.result = bytes(frame.payload)
            else:
                rank.failure = failure_fields(rank.number, failure)
                if self._template.gpu and isinstance(failure, dict) and failure.get("kind") == "no_gpu":
                    raise NoGpuError(rank.failure["message"])
                self._relay.gone(rank.number, f"stopped: {line(rank.failure['message'])}")
                if rank.failure["kind"] == "not_implemented":
                    raise _CaseOverError(**{k: rank.failure[k] for k in ("kind", "rank", "message", "detail", "error")})

    def _template_says(self) -> None:
        for message in self._template.messages():
            if message["op"] == "started" and message["case"] == self._serial:
                rank = self._ranks[message["rank"]]
                rank.pid = message["pid"]
                self._by_pid[rank.pid] = rank
            elif message["op"] == "exit" and message["pid"] in self._by_pid:
                self._exited(self._by_pid[message["pid"]], int(message["code"]))

    def _exited(self, rank: _Rank, code: int) -> None:
        if code == NOT_MADE:
            raise EnvironmentProblem("a rank's sandbox could not be made; what it printed is above")
        rank.exit_code = code
        if not rank.jobs.closed:
            self._from_jobs(rank)
        if rank.result is None and rank.failure is None:
            words = exit_words(rank.number, code)
            rank.failure = {"kind": "died", "rank": rank.number, "message": words, "detail": "", "error": ""}
            self._relay.gone(rank.number, "has ended: " + words)

    def _answer(self) -> None:
        while self._relay.outbox:
            number, header, payload = self._relay.outbox.popleft()
            self._ranks[number].relay.send(header, payload)

    def _unstick(self) -> None:
        if any(rank.failure for rank in self._ranks):
            raise _CaseOverError(**self._first_failure_or_die())
        deadlock = self._relay.unstick()
        if deadlock is not None:
            raise _CaseOverError("deadlock", deadlock.rank, deadlock.text, "\n".join(deadlock.lines))
        self._answer()

    def _read_output(self, rank: _Rank, final: bool = False) -> None:
        with suppress(BlockingIOError):
            for _ in range(64):
                data = os.read(rank.output_fd, 1 << 16)
                if not data:
                    if not final and not rank.output_ended:
                        rank.output_ended = True
                        self._selector.unregister(rank.output_fd)
                    return
                rank.num_output_bytes += len(data)
                rank.output += data[: max(0, self._limits.rank_output_bytes - len(rank.output))]
                if rank.num_output_bytes > self._limits.rank_flood_bytes and not final:
                    mb = self._limits.rank_flood_bytes >> 20
                    raise _CaseOverError(
                        "died", rank.number, f"Rank {rank.number} printed more than {mb} MB and was ended."
                    )

    # ---- words

    def _timeout(self) -> _CaseOverError:
        late = [r for r in self._ranks if r.result is None and r.failure is None]
        names = ", ".join(str(rank.number) for rank in late)
        plural = "s" if len(late) > 1 else ""
        return _CaseOverError(
            "timeout",
            late[0].number if late else None,
            f"No result within {self._seconds:g} s: rank{plural} {names} still ran.",
            "\n".join(self._relay.lines()) if len(self._ranks) > 1 else "",
        )

    def _first_failure(self) -> dict[str, Any] | None:
        """Return the failure to show: a learner's own exception before a lost connection or a death."""
        failures = [rank.failure for rank in self._ranks if rank.failure]
        order = {"not_implemented": 0, "exception": 1, "bad_result": 2, "died": 3}
        failures.sort(key=lambda f: (f["error"] == "ConnectionError", order.get(f["kind"], 4), f["rank"]))
        return failures[0] if failures else None

    def _first_failure_or_die(self) -> dict[str, Any]:
        failure = self._first_failure()
        assert failure is not None
        return failure
