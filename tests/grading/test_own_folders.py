"""What a killed run left in the folder of temporary files is told from what is in use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from labkit.grading.own_folders import own_prefix, remove_left_behind
from labkit.grading.preloaded.client import Preloaded
from labkit.grading.sandbox.cgroup import Cgroup, remove_groups_left_behind

MAKE = (
    "import tempfile; from labkit.grading.own_folders import own_prefix; "
    "print(tempfile.mkdtemp(prefix=own_prefix('class')), flush=True); input()"
)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_folder_goes_when_its_owner_was_killed_and_not_before(temporary: Path) -> None:
    command = [sys.executable, "-c", MAKE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        (folder / "course").mkdir()
        (folder / "course" / "notebook.ipynb").write_text("{}")
        assert remove_left_behind() == [] and folder.is_dir()
        owner.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody has asked how: a zombie
        assert remove_left_behind() == [folder]
    assert list(temporary.iterdir()) == [] and remove_left_behind() == []


def test_a_process_that_has_the_id_of_a_dead_one_does_not_keep_its_folder(temporary: Path) -> None:
    mine = own_prefix("kernel")
    kind, _, started = mine.rstrip("_").rpartition("_")
    earlier, now = temporary / f"{kind}_{int(started) - 1}_abc", temporary / f"{mine}abc"
    earlier.mkdir()
    now.mkdir()
    assert remove_left_behind() == [earlier]
    assert now.is_dir()


def test_what_is_not_known_to_be_ours_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = own_prefix("class").split("-")[2].split("_")[0]
    dead = f"{namespace}_{2**22 + 1}_1_abc"  # beyond the highest id that Linux gives
    for name in (f"lk-class-{int(namespace) + 1}_1_1_abc", "lk-class-abcdefgh", "labkit-abcdefgh"):
        (temporary / name).mkdir()  # of another container, of no owner, of something else
    (temporary / f"lk-file-{dead}").write_text("")
    (temporary / f"lk-link-{dead}").symlink_to(temporary)
    before = sorted(temporary.iterdir())
    assert remove_left_behind() == [] and sorted(temporary.iterdir()) == before
    (temporary / f"lk-class-{dead}").mkdir()
    with monkeypatch.context() as other:
        other.setattr("os.getuid", lambda: 12345)
        assert remove_left_behind() == []
    assert [path.name for path in remove_left_behind()] == [f"lk-class-{dead}"]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_what_torch_leaves_goes_with_the_process_that_loads_it() -> None:
    preloaded = Preloaded()
    try:
        about = Path(f"/proc/{preloaded.pid}/environ")
        while not (environment := about.read_text().split("\0"))[0]:  # empty while the program is being loaded
            assert about.is_file()
        told = [item for item in environment if item.startswith("TORCHINDUCTOR_CACHE_DIR=")]
        folder = Path(told[0].partition("=")[2])
        assert folder.is_dir() and folder.name.startswith(own_prefix("torch"))
    finally:
        preloaded.close()
    assert not folder.exists()


def test_a_group_whose_grader_was_killed_goes() -> None:
    group = Cgroup(1 << 30, 100)
    if not group.folders:
        pytest.skip("no control group can be made here")
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = [folder.rename(folder.parent / f"labkit-{ended.pid}-0") for folder in group.folders]
    remove_groups_left_behind()
    assert not any(folder.exists() for folder in left)
