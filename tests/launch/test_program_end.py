"""A rank's program ends as under torchrun: threads are waited for, atexit is called, open files are written."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import labkit
from labkit.errors import RankFailed

PROGRAM = """
import atexit, gzip, os, sys, threading, time
folder, fails = sys.argv[1], len(sys.argv) > 2
atexit.register(lambda: open(f"{folder}/exit{os.environ['RANK']}", "w").write("called"))
atexit.register(lambda: print("last words"))
log = open(f"{folder}/log{os.environ['RANK']}", "w")
log.write("not closed by the program")
packed = gzip.open(f"{folder}/packed{os.environ['RANK']}", "wt")
packed.write("nor this")
def late():
    time.sleep(0.2)
    log.write(", written by a thread")
threading.Thread(target=late).start()
if fails:
    raise ValueError("on purpose")
"""


def test_atexit_threads_and_open_files_are_as_in_a_process_of_its_own(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    run = labkit.run(labkit.script(program, tmp_path), on=labkit.local(2, device="cpu"), echo=False)
    for rank in range(2):
        assert (tmp_path / f"exit{rank}").read_text() == "called"
        assert (tmp_path / f"log{rank}").read_text() == "not closed by the program, written by a thread"
        assert gzip.decompress((tmp_path / f"packed{rank}").read_bytes()) == b"nor this"
        assert "last words" in run.output[rank]


def test_a_program_that_fails_calls_atexit_and_writes_its_files_too(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with pytest.raises(RankFailed, match="on purpose"):
        labkit.run(labkit.script(program, tmp_path, "fails"), on=labkit.local(1, device="cpu"), echo=False)
    assert (tmp_path / "log0").read_text().startswith("not closed by the program")
    assert (tmp_path / "exit0").read_text() == "called"


def test_a_rank_ends_without_what_its_preloaded_process_would_say_at_its_own_end() -> None:
    """Torch's last words took a tenth of a second of each rank."""

    def loaded_at_the_end() -> set[str]:
        import atexit
        import sys
        import weakref

        kept: list[str] = []
        atexit.register(kept.append, "the program's own")
        weakref.finalize(loaded_at_the_end, kept.append, "and its finalizer")
        before = set(sys.modules)
        atexit._run_exitfuncs()
        assert sorted(kept) == ["and its finalizer", "the program's own"]
        return set(sys.modules) - before

    assert labkit.run(loaded_at_the_end, on=labkit.local(1), echo=False).results == [set()]
