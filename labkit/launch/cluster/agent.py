"""The agent: one process on each host that owns its ranks, for as long as the notebook renews its lease."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError
from labkit.launch.cluster.addresses import address_on, interface_of
from labkit.launch.cluster.agent_run import AgentRun
from labkit.launch.cluster.clocks import FIRST, Clock, Comparison, compare, serve_clock
from labkit.launch.cluster.link import LOST, Link, answer, connect
from labkit.launch.cluster.versions import versions
from labkit.launch.local import default_start_method

_FIRST_CALL_SECONDS = 120.0
"""So long an agent waits for its notebook before it ends."""
NOTEBOOK, CLOCK = b"n", b"c"
"""The first byte of a caller: who it is."""


def main() -> None:
    """Read the settings from standard input, say on standard output where to connect, and serve until it is over."""
    settings = json.loads(sys.stdin.readline())
    say = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no word of the agent's
    address = settings["address"]
    try:
        data_address = address_on(settings["interface"]) if settings["interface"] else address
        listeners = {one: socket.create_server((one, 0), family=_family(one)) for one in {address, data_address}}
    except (LabkitError, OSError) as error:
        os.write(say, json.dumps({"problem": str(error)}).encode() + b"\n")
        return
    about = {
        "port": listeners[address].getsockname()[1],
        "data": [data_address, listeners[data_address].getsockname()[1]],
        "interface": settings["interface"] or interface_of(data_address),
        "pid": os.getpid(),
        "folder": settings["folder"],
        "name": settings["name"] or socket.gethostname(),
        "cores": _num_cores(),
        "versions": versions(),
    }
    os.write(say, json.dumps(about).encode() + b"\n")
    threading.Thread(target=_beat, args=(say,), daemon=True).start()
    if settings["first"]:  # the store that ranks meet at is torch's: loaded while the notebook is still on its way
        threading.Thread(target=import_module, args=("labkit.torch_port.stores",), daemon=True).start()
    agent = Agent(about, bytes.fromhex(settings["secret"]), settings["files"], settings["folder"])
    threading.Thread(target=_end_with_the_worker, args=(agent,), daemon=True).start()
    for listener in listeners.values():
        threading.Thread(target=agent.listen, args=(listener,), daemon=True).start()
    agent.serve()


class Agent:
    """Serves one notebook."""

    def __init__(self, about: Mapping[str, Any], secret: bytes, files: Mapping[str, str] | None, folder: str) -> None:
        """Take what the agent said of itself, the cluster's secret, its Dask worker's TLS files, and a folder."""
        self._about, self._secret, self._folder = about, secret, folder
        self._answering = tls_context(files, server=True)
        self._calling = tls_context(files, server=False)
        self._called = threading.Event()
        self._link: Link | None = None
        self._first: tuple[str, int] | None = None
        self._clock: Clock = FIRST
        self._run: AgentRun | None = None
        self._store: tuple[socket.socket, Any] | None = None
        self._turn: contextlib.ExitStack | None = None
        self._worker_gone, self._worker_goes = socket.socketpair()

    def listen(self, listener: socket.socket) -> None:
        """Answer callers: the notebook, once, and other agents that compare clocks."""
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock = answer(sock, self._secret, self._answering)
            who = sock.recv(1)
            if who == CLOCK:
                serve_clock(sock)
            elif who == NOTEBOOK and self._link is None:
                self._link = Link(sock)
                self._called.set()
            else:
                sock.close()

    def worker_gone(self) -> None:
        """Note that the Dask worker has ended."""
        self._called.set()
        self._worker_goes.send(b".")

    def serve(self) -> None:
        """Do what the notebook asks until the lease is lost, the notebook hangs up, or the Dask worker ends."""
        if default_start_method() == "zygote":
            from labkit.launch.preloaded import warm

            warm()
        if not self._called.wait(_FIRST_CALL_SECONDS) or self._link is None:
            return
        link = self._link
        selector = selectors.DefaultSelector()
        selector.register(link.arrived, selectors.EVENT_READ, "link")
        selector.register(self._worker_gone, selectors.EVENT_READ, "worker")
        try:
            while True:
                run = self._run
                for key, _ in selector.select(1.0) if run is None else run.select(selector):
                    if key.data == "worker":
                        link.send("leaving", "the Dask worker there has ended")
                        return
                for kind, value in link.take():
                    if kind in (LOST, "bye"):
                        return
                    self._do(link, kind, value)
        finally:
            self._end_run()
            link.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _do(self, link: Link, kind: str, value: Any) -> None:
        try:
            if kind == "prepare":
                link.send("prepared", self._prepare(value))
            elif kind == "start":
                self._run = AgentRun(link, value, self._about, self._folder)
            elif kind == "turn":
                link.send("turned", self._take_turn(*value))
            elif kind == "end":
                self._end_run()
                if self._first is not None:
                    with contextlib.suppress(OSError):
                        self._clock = Clock(self._clock.before, self._compare(*self._first))
                link.send("ended", self._clock)
            elif kind == "gpus":
                from labkit.launch.gpus import gpus

                link.send("gpus", gpus())
            elif self._run is not None:
                self._run.do(kind, value)
        except LabkitError as error:
            link.send("problem", str(error))
        except OSError as error:
            link.send("problem", f"{type(error).__name__}: {error}")

    def _prepare(self, first: tuple[str, int] | None) -> tuple[Clock, int]:
        """Return how this clock compares with that of the first host; that host, where the ranks can meet."""
        self._first = first
        if first is not None:
            self._clock = Clock(self._compare(*first))
            return self._clock, 0
        from labkit.torch_port.stores import host_store

        self._clock = FIRST
        address = self._about["data"][0]
        listener = socket.create_server((address, 0), family=_family(address), backlog=512)
        self._store = (listener, host_store(listener))
        return self._clock, listener.getsockname()[1]

    def _compare(self, address: str, port: int) -> Comparison:
        with connect(address, port, self._secret, self._calling, 2.0) as sock:
            sock.settimeout(2.0)
            sock.sendall(CLOCK)
            return compare(sock)

    def _take_turn(self, names: tuple[str, ...], wanted: int) -> tuple[str, ...]:
        from labkit.launch.gpu_turns import gpu_turn

        self._turn = contextlib.ExitStack()
        return self._turn.enter_context(gpu_turn(names, wanted, None))

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.end()
        store, self._store = self._store, None
        if store is not None:
            store[0].close()
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.close()


def tls_context(files: Mapping[str, str] | None, *, server: bool) -> ssl.SSLContext | None:
    """Return a context in which both sides show certificates of the cluster's own authority; None without TLS.

    Args:
        files: Text of the Dask worker's ``tls_ca_file``, ``tls_worker_cert`` and ``tls_worker_key``.
        server: Whether for answering.
    """
    if files is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # as Dask: who has a certificate of this authority belongs to the cluster
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=files["tls_ca_file"])
    with tempfile.TemporaryDirectory() as folder:  # load_cert_chain takes files only
        cert, key = Path(folder) / "cert", Path(folder) / "key"
        for path, part in ((cert, "tls_worker_cert"), (key, "tls_worker_key")):
            path.touch(0o600)
            path.write_text(files[part], encoding="ascii")
        context.load_cert_chain(cert, key)
    return context


def _beat(say: int) -> None:
    """Tell the task in the Dask worker once a second that this process goes on."""
    with contextlib.suppress(OSError):
        while True:
            time.sleep(1.0)
            os.write(say, b".\n")


def _end_with_the_worker(agent: Agent) -> None:
    with contextlib.suppress(OSError, ValueError):
        while os.read(0, 4096):
            pass
    agent.worker_gone()


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
