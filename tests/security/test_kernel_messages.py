"""What a notebook's kernel sends to the trusted side, forged by the code in it: bounded, and it costs nobody else."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
from grading.small_lesson import code_cell, notebook

from labkit.grading.limits import Limits
from labkit.grading.notebook.execute import NotebookReader
from labkit.grading.notebook.message_bounds import LONGEST_VALUE, MOST_METADATA_BYTES, bounded_content, size_of
from labkit.grading.notebook.notebook_run import NotebookRun
from labkit.grading.sandbox import bubblewrap
from labkit.grading.sandbox.safe_open import NotInsideError, open_inside

pytestmark = pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}")

LIMITS = Limits(cell_seconds=6.0, grace_seconds=1.0, notebook_seconds=20.0)
SEND = """
import json, os, threading, time, zmq
from ipykernel.kernelapp import IPKernelApp
from IPython import get_ipython
kernel, session = IPKernelApp.instance().kernel, IPKernelApp.instance().session
pub = IPKernelApp.instance().iopub_socket
parent = kernel.get_parent('shell')
def send(kind, content, buffers=None, metadata=None):
    ident = b'kernel.' + kind.encode()
    session.send(pub, kind, content, parent=parent, ident=ident, buffers=buffers, metadata=metadata)
"""
FORGED = {
    "enames": "for _ in range(3000): send('error', {'ename': 'e' * 3_000_000, 'evalue': 'v', 'traceback': []})",
    "evalues": "for _ in range(3000): send('error', {'ename': 'e', 'evalue': 'v' * 3_000_000, 'traceback': []})",
    "metadata": "for n in range(3000): send('display_data', {'data': {}, 'metadata': {str(n): 'm' * 3_000_000}})",
    "nested": "for _ in range(3000): send('display_data', {'data': {'x': [[[] for _ in range(999_000)]]}})",
    "displays": (
        "for n in range(10**7): send('display_data', {'data': {'text/plain': ''}, 'metadata': {}, "
        "'transient': {'display_id': str(n) * 100}})"
    ),
    "comms": "for n in range(3000): send('comm_open', {'comm_id': str(n), 'data': {'state': {'x': 'c' * 3_000_000}}})",
    "buffers": "for n in range(3000): send('comm_msg', {'comm_id': 'x', 'data': {}}, [b'b' * 7_000_000] * 20)",
    "parts": "while True: pub.send_multipart([b'p' * 7_000_000] * 64)",
    "no-messages": "while True: pub.send_multipart([b'<IDS|MSG>', b'{'])",
}


@pytest.fixture(scope="module")
def reader() -> Iterator[NotebookReader]:
    reader = NotebookReader((), LIMITS)
    yield reader
    reader.close()


def run(reader: NotebookReader, work: Path, *sources: str) -> NotebookRun:
    content = notebook()
    content["cells"] = [code_cell(f"cell-{index}", source, []) for index, source in enumerate(sources)]
    return reader.run(nbformat.from_dict(content), work)


def _most_bytes(reader: NotebookReader, stop: threading.Event, most: list[int]) -> None:
    while not stop.wait(0.02):
        try:
            process = psutil.Process(reader.pid)
            most.append(sum(each.memory_info().rss for each in (process, *process.children(recursive=True))))
        except psutil.NoSuchProcess:
            continue


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "enames" else pytest.mark.long) for name in FORGED]
)
def test_whatever_a_kernel_sends_is_read_in_less_than_a_gigabyte(
    reader: NotebookReader, tmp_path: Path, name: str
) -> None:
    stop, most = threading.Event(), [0]
    watch = threading.Thread(target=_most_bytes, args=(reader, stop, most))
    watch.start()
    found = run(reader, tmp_path, "1 + 1", SEND + FORGED[name])
    stop.set()
    watch.join()
    print(f"{name}: {max(most) / 1e6:.0f} MB; {found.summary} {found.cells[-1:]}"[:400])
    assert max(most) < 1 << 30
    assert sum(len(cell.text) + len(cell.error) + len(cell.message) for cell in found.cells) < 200_000


@pytest.mark.long
def test_the_next_notebook_is_read_whatever_the_last_one_sent(reader: NotebookReader, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    run(reader, tmp_path / "first", SEND + FORGED["parts"])
    assert run(reader, tmp_path / "second", "print(1)").cells[0].text == "1\n"


def test_every_field_of_an_output_is_bounded_and_of_its_type() -> None:
    large, deep = "x" * 10**6, {"a": [{"b": "y" * 10**6}]}
    stream = bounded_content("stream", {"name": large, "text": large, "more": large}, 1000)
    assert stream == {"name": "stdout", "text": "x" * 1000}
    error = bounded_content("error", {"ename": large, "evalue": large, "traceback": [large] * 10**4}, 1000)
    assert size_of(error) < 110 * LONGEST_VALUE
    assert bounded_content("error", {"ename": 3, "evalue": None, "traceback": deep}, 1000) == {
        "ename": "", "evalue": "", "traceback": [],
    }  # fmt: skip
    told = {"data": {"text/plain": large, "image/png": large, "a/json": deep, large: "x"}, "metadata": deep}
    display = bounded_content("display_data", {**told, "transient": {"display_id": large}}, 1000)
    assert display["data"] == {"text/plain": "x" * 1000} and display["metadata"] == {}
    assert len(display["transient"]["display_id"]) == 200
    assert bounded_content("execute_result", {"execution_count": deep}, 10)["execution_count"] == 1
    nonsense: object
    for nonsense in (None, [], 3, "text"):
        assert size_of(bounded_content("stream", nonsense, 10)) < 400
    small = {"labkit": {"prediction": "p", "result": 3.0}}
    assert bounded_content("display_data", {"data": {}, "metadata": small}, 10)["metadata"] == small
    assert bounded_content("display_data", {"metadata": {"m": "m" * MOST_METADATA_BYTES}}, 10)["metadata"] == {}


def test_a_socket_that_was_replaced_by_a_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(tmp_path / "service"))
        (tmp_path / "run" / "kernel-1").symlink_to(tmp_path / "service")
        (tmp_path / "run" / "kernel-2").write_text("no socket")
        (tmp_path / "elsewhere").symlink_to(tmp_path)
        folder = os.open(tmp_path, os.O_PATH)
        try:
            found = open_inside(folder, "service", stat.S_ISSOCK)
            with socket.socket(socket.AF_UNIX) as client:
                service.listen()
                client.connect(f"/proc/self/fd/{found}")
            os.close(found)
            for path in ("run/kernel-1", "run/kernel-2", "elsewhere/service", "run/../service", "/etc/passwd"):
                with pytest.raises(NotInsideError):
                    open_inside(folder, path, stat.S_ISSOCK)
        finally:
            os.close(folder)


def test_what_reads_a_kernels_messages_is_not_root_and_sees_no_more_than_a_sandbox(
    reader: NotebookReader, tmp_path: Path
) -> None:
    run(reader, tmp_path, "1")
    below = [psutil.Process(reader.pid), *psutil.Process(reader.pid).children(recursive=True)]
    reading = next(each for each in reversed(below) if "labkit.grading.notebook.reader" in each.cmdline())
    assert os.geteuid() != 0 or 0 not in reading.uids()
    if os.geteuid() == 0:
        assert not Path(f"/proc/{reading.pid}/root", *tmp_path.parts[1:]).exists()


def test_the_reader_ends_with_its_handle(tmp_path: Path) -> None:
    reader = NotebookReader((), LIMITS)
    run(reader, tmp_path, "1")
    below = [psutil.Process(reader.pid), *psutil.Process(reader.pid).children(recursive=True)]
    reader.close()
    _, alive = psutil.wait_procs(below, timeout=30)
    assert alive == []
