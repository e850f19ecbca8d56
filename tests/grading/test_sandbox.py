"""What a submission sees and may do in its sandbox, in the executed notebook and in a rank of a hidden case."""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from grading.small_lesson import RIGHT, code_cell, notebook, write_submission
from labkit.checks import wire_format
from labkit.checks.rooms import LABKIT, exercises
from labkit.grading.course import Course
from labkit.grading.hidden_cases import rank_exercise
from labkit.grading.hidden_cases.oracle import Oracle
from labkit.grading.hidden_cases.probe import Outcome
from labkit.grading.limits import Limits
from labkit.grading.notebook.execute import execute
from labkit.grading.notebook.notebook_run import NotebookRun
from labkit.grading.preloaded.client import Preloaded
from labkit.grading.sandbox import bubblewrap
from labkit.grading.sandbox.counted_calls import MOST_OF_KERNEL
from labkit.grading.sandbox.view import PACKAGE, python_folders, runtime, shown_in_scratch

pytestmark = pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}")

SEEN = (
    "[os.getpid(), sorted(os.listdir('/')), os.listdir('/tmp'), sorted(p for p in os.listdir('/proc') if p.isdigit())]"
)


def run(tmp_path: Path, course: Course, *sources: str, limits: Limits | None = None) -> NotebookRun:
    content = notebook()
    content["cells"] = [code_cell(f"cell-{index}", source, []) for index, source in enumerate(sources)]
    work = tmp_path / "w"
    work.mkdir()
    return execute(nbformat.from_dict(content), work, limits, course.secrets)


@pytest.mark.in_turn
def test_a_notebook_sees_python_labkit_and_nothing_else(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    root = Path(__file__).parents[2]
    found = run(
        tmp_path,
        course,
        "import json, os, labkit, torch",
        f"print(json.dumps([sorted(os.listdir('/')), os.path.exists({str(course.root)!r}), "
        f"os.listdir({str(root)!r}), 'SECRET_TOKEN' in os.environ, os.getuid(), open('/proc/1/comm').read()]))",
    )
    assert found.summary == "Every cell ran."
    top, course_seen, beside_labkit, has_secret, uid, first = json.loads(found.cells[1].text)
    assert "home" not in top and "mnt" not in top
    assert (course_seen, has_secret, first) == (False, False, "bwrap\n")
    assert set(beside_labkit) <= {
        "labkit",
        *(path.relative_to(root).parts[0] for path in python_folders() if root in path.parents),
    }
    assert uid != 0


@pytest.mark.in_turn
def test_ranks_rpc_and_virtual_ranks_run_in_a_notebook(course: Course, tmp_path: Path) -> None:
    found = run(
        tmp_path,
        course,
        "import labkit, torch, torch.distributed as dist, torch.distributed.rpc as rpc\n"
        "def add():\n"
        "    x = torch.ones(2)\n"
        "    dist.all_reduce(x)\n"
        "    return x.tolist()\n"
        "def call():\n"
        "    rank = dist.get_rank()\n"
        "    rpc.init_rpc(f'worker{rank}', rank=rank, world_size=2)\n"
        "    answer = rpc.rpc_sync('worker1', torch.add, args=(torch.ones(1), 1)).item() if rank == 0 else None\n"
        "    rpc.shutdown()\n"
        "    return answer\n",
        "print(labkit.run(add, on=labkit.local(3), echo=False).results)",
        "print(labkit.run(call, on=labkit.local(2), echo=False).results)",
        "print(labkit.run(add, on=labkit.virtual(4, gpu='h100', link='nvlink4')).results)",
    )
    assert [cell.state for cell in found.cells] == ["ok"] * 4, [cell.message for cell in found.cells]
    assert found.cells[1].text.strip() == "[[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]"
    assert found.cells[2].text.strip() == "[2.0, None]"
    assert found.cells[3].text.strip() == str([[4.0, 4.0]] * 4)


@pytest.mark.in_turn
def test_a_loop_in_a_sandbox_is_interrupted_and_the_next_cell_runs(course: Course, tmp_path: Path) -> None:
    limits = Limits(cell_seconds=2.0, grace_seconds=60.0)
    found = run(tmp_path, course, "while True: pass", "print('next')", limits=limits)
    assert [cell.state for cell in found.cells] == ["timeout", "ok"]


@pytest.mark.long
def test_memory_is_that_of_the_whole_tree(course: Course, tmp_path: Path) -> None:
    limits = Limits(kernel_memory_bytes=600 << 20)
    source = (
        "import os, time\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0:\n"
        "        held = b'x' * (150 << 20)\n"
        "        time.sleep(600)\n"
        "time.sleep(600)"
    )
    found = run(tmp_path, course, source, limits=limits)
    assert "took more than the 0.6 GB of memory that a notebook and its ranks may have together" in found.summary


Probe = Callable[..., Outcome]


@pytest.mark.in_turn
def test_a_rank_is_alone_and_sees_no_judge(probe: Probe) -> None:
    source = (
        "import os, importlib.util, socket, sys\n"
        "def program(rank):\n"
        f"    lessons = [name for name in sys.modules if name.endswith('.exercise') and 'exercises.' in name]\n"
        "    try:\n"
        "        import labkit.exercises.ring_all_reduce.ring_sum.exercise as room\n"
        "        lessons.append(room.EXERCISE)\n"
        "    except (ImportError, AttributeError):\n"
        "        pass\n"
        f"    return {SEEN} + [lessons, len(socket.if_nameindex()), os.listdir('/run')]\n"
    )
    outcome = probe("program", {"program": source}, case=1)
    assert outcome.failure is None, outcome.failure
    for result in outcome.results:
        pid, top, scratch, processes, lessons, interfaces, run_folder = wire_format.decode(result)["y"]  # type: ignore[misc]
        ours = sorted({path.parts[2] for path in shown_in_scratch()})  # a checkout below /tmp
        assert (pid, scratch, processes, interfaces, run_folder) == (2, ours, ["2"], 1, [])
        assert lessons == []
        assert "home" not in top  # type: ignore[operator]


def test_what_ranks_are_told_of_an_exercise_holds_no_oracle_and_no_judge(oracle: Oracle) -> None:
    told = [oracle.rank_side, rank_exercise.pack(exercises("ring_all_reduce"), LABKIT, "ring_all_reduce")]
    words = {word for data in told for word in re.findall(r"\w+", data.decode())}
    answers = {each.oracle.__name__ for each in exercises("ring_all_reduce").values()}
    answers |= {"EXERCISE", "doubled", "shifted", "totals", "finding"}
    assert not words & answers
    assert {"drive", "double", "ring_sum"} <= words


@pytest.mark.long
def test_a_full_disk_is_told_and_the_next_run_goes_on(course: Course, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_submission(tmp_path / "in" / f"{name}.ipynb", RIGHT)
    out = tmp_path / "out"
    out.mkdir()
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from labkit.errors import EnvironmentProblem\n"
        "from labkit.grading.grade import grade\n"
        "out = Path(sys.argv[2])\n"
        "def go():\n"
        "    return grade([sys.argv[1]], '90', out, jobs=1, course=sys.argv[3], sandbox='none', points_only=True)\n"
        "(out / 'filler').write_bytes(b'x' * (170 << 10))\n"
        "try:\n"
        "    go()\n"
        "except EnvironmentProblem as error:\n"
        "    print(error)\n"
        "done = sorted(path.parent.name for path in out.glob('*/result.json'))\n"
        "(out / 'filler').unlink()\n"
        "print(done, [(entry.name, entry.score, entry.name in done) for entry in go()])\n"
        "print(sorted(path.name for path in out.rglob('*.part')))\n"
    )
    command = ["bwrap", "--dev-bind", "/", "/", "--size", str(200 << 10), "--tmpfs", str(out), "--die-with-parent"]
    command += [sys.executable, "-c", program, str(tmp_path / "in"), str(out), str(course.root)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    told, result, parts = ended.stdout.splitlines()
    assert "the disk is full" in told and "run the same command again; finished reports are kept" in told
    assert result.endswith("[('a', 10.0, True), ('b', 10.0, False), ('c', 10.0, False)]"), result
    assert parts == "[]"


HELD_BY = """
import json, os, pathlib, re, resource, sys
own = pathlib.Path("/proc/self")
status = dict(line.split(":\\t", 1) for line in (own / "status").read_text().splitlines())
kept = "Umask Uid Gid Groups NoNewPrivs Seccomp CapInh CapPrm CapEff CapBnd CapAmb SigIgn".split()
held = {name: status[name] for name in kept}
held["limits"] = (own / "limits").read_text()
held["groups"] = [line.split(":", 2)[1] for line in (own / "cgroup").read_text().splitlines() if "labkit-" in line]
held["mounts"] = [line.split()[3:] for line in (own / "mountinfo").read_text().splitlines()]
held["same as process 1"] = [os.readlink(own / "ns" / name) == os.readlink(f"/proc/1/ns/{name}")
                             for name in sorted(os.listdir(own / "ns"))]
held["environment"] = sorted(item for item in os.environ.items() if not item[0].startswith("PYDEVD_"))
held["places"] = [os.getcwd(), os.getsid(0) != 0, os.path.exists("/proc/self/mem"), os.listdir("/run") != []]
held["open"] = [os.readlink(f"/proc/self/fd/{fd}").split("[")[0] for fd in range(3)]
keys = pathlib.Path("/proc/keys").read_text() if os.path.exists("/proc/keys") else ""
held["keys"] = [line for line in keys.splitlines() if not line.endswith("_ses: empty")]  # a keyring of its own
text = re.sub(r"lk-[a-z]+-\\w+", "lk", json.dumps(held))
print(text)
"""
LEAKS = """
import gc, os, sys
inherited = open("/proc/self/environ").read() + open("/proc/self/cmdline").read()
shown = [name.replace("labkit.grading.hidden_cases", "probe") for name in sys.modules]  # our code; no case is in it
print([name for name in shown if ".exercises." in name or "course_exercises" in name])
print("hunter2" in inherited, {course!r} in inherited, "TMPDIR=/tmp" in inherited)
there = [f"/proc/self/fd/{{fd}}" for fd in os.listdir("/proc/self/fd")]
kinds = [os.readlink(path) for path in there if os.path.lexists(path)]
ours = ("/dev/null", "socket:", "anon_inode:", "pipe:", "/proc", "/tmp")
print([kind for kind in kinds if not kind.startswith(ours)])
"""


@pytest.mark.long
def test_a_forked_kernel_is_held_exactly_as_one_that_was_started_anew(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    preloaded = Preloaded()
    told = {}
    try:
        for way, source in (("new", None), ("forked", preloaded), ("forked again", preloaded)):
            content = notebook()
            cells = (HELD_BY, LEAKS.format(course=str(course.root)), "SECOND = 'left for the next'")
            content["cells"] = [code_cell(f"cell-{index}", cell, []) for index, cell in enumerate(cells)]
            work = tmp_path / way.replace(" ", "-")
            work.mkdir()
            found = execute(nbformat.from_dict(content), work, None, course.secrets, source)
            assert found.summary == "Every cell ran.", found.cells
            told[way] = json.loads(found.cells[0].text)
            assert found.cells[1].text == "[]\nFalse False True\n[]\n", (way, found.cells[1].text)
    finally:
        preloaded.close()
    for name in told["new"]:
        assert told["forked"][name] == told["new"][name] == told["forked again"][name], name


@pytest.mark.in_turn
def test_the_process_that_forks_kernels_reads_nothing_of_them(course: Course, tmp_path: Path) -> None:
    left = "import builtins, torch, sys\nbuiltins.left = torch.left = sys.left = 'for the next'"
    look = "import builtins, torch, sys\nprint([hasattr(each, 'left') for each in (builtins, torch, sys)])"
    preloaded = Preloaded()
    try:
        for name, source in (("first", left), ("second", look)):
            content = notebook()
            content["cells"] = [code_cell("cell", source, [])]
            (tmp_path / name).mkdir()
            found = execute(nbformat.from_dict(content), tmp_path / name, None, course.secrets, preloaded)
    finally:
        preloaded.close()
    assert found.cells[0].text == "[False, False, False]\n"


KEPT_BACK = """
import os, labkit
folder = os.path.dirname(labkit.__file__) + "/exercises"
names = [name for _, _, names in os.walk(folder) for name in names]
print("exercise.py" in names, sorted({name for name in names if name.startswith(("hidden", "wrong"))}))
for name in ("hidden", "wrong"):
    try:
        __import__(f"labkit.exercises.ring_all_reduce.ring_sum.{name}")
    except ImportError:
        print(name, "is not there")
"""


@pytest.mark.in_turn
def test_a_kernel_sees_labkits_exercises_without_what_is_kept_back(course: Course, tmp_path: Path) -> None:
    content = notebook()
    content["cells"] = [code_cell("cell", KEPT_BACK, [])]
    found = execute(nbformat.from_dict(content), tmp_path, None, course.secrets)
    assert found.cells[0].text == "True []\nhidden is not there\nwrong is not there\n"


CALLS = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def asked(name, *arguments):
    ctypes.set_errno(0)
    getattr(libc, name)(*arguments)
    return errno.errorcode.get(ctypes.get_errno(), "allowed")
def family(number):
    try:
        socket.socket(number, socket.SOCK_RAW if number == 17 else socket.SOCK_STREAM).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "allowed"
answers = {"unshare": asked("unshare", 0), "ptrace": asked("ptrace", 0, 0, 0, 0),
    "keyctl": asked("syscall", 250, 0, -3, 0),
    "io_uring": asked("syscall", 425, 1, None), "bpf": asked("syscall", 321, 0, None, 0),
    "clone": asked("syscall", 56, 0x10000000 | 17, 0, 0, 0, 0), "vsock": family(40), "packets": family(17),
    "processors": asked("syscall", 203, 0, 8, ctypes.byref(ctypes.c_uint64(1))), "unix": family(1), "inet": family(2)}
"""
CUT = dict.fromkeys(("unshare", "ptrace", "keyctl", "bpf", "clone", "processors"), "EPERM") | {
    "io_uring": "ENOSYS", "vsock": "EAFNOSUPPORT", "packets": "EAFNOSUPPORT", "unix": "allowed", "inet": "allowed"
}  # fmt: skip


MADE_BEFORE = """
from labkit.grading.sandbox import seccomp
seccomp.prepare()
made = seccomp._filter.cache_info().currsize
seccomp.forbid_calls(of_rank=True)
seccomp.forbid_calls()
print(seccomp._filter.cache_info().currsize - made)
"""


def test_a_fork_makes_no_filter_anew() -> None:
    done = subprocess.run([sys.executable, "-c", MADE_BEFORE], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.in_turn
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of the calls are those of x86-64")
def test_calls_no_lesson_needs_are_cut_in_kernel_and_rank(course: Course, tmp_path: Path, probe: Probe) -> None:
    found = run(tmp_path, course, CALLS + "import json\nprint(json.dumps(answers))")
    assert json.loads(found.cells[0].text) == CUT
    outcome = probe("program", {"program": CALLS + "def program(rank):\n    return answers\n"}, case=1)
    assert outcome.failure is None, outcome.failure
    assert wire_format.decode(outcome.results[0])["y"] == CUT  # type: ignore[index]


COUNTS = """
import os
made = 0
try:
    while made < 40_000:
        for end in os.pipe(): os.close(end)
        made += 1
except OSError as error:
    print(made, type(error).__name__, error.errno)
"""


@pytest.mark.in_turn
def test_a_kernel_makes_so_many_pipes_and_no_more(course: Course, tmp_path: Path) -> None:
    """From the inode of each it sees how many others have been made, and two kernels could tell each other by them."""
    content = notebook()
    content["cells"] = [code_cell("cell", COUNTS, [])]
    preloaded = Preloaded()
    try:
        found = execute(nbformat.from_dict(content), tmp_path, None, course.secrets, preloaded)
    finally:
        preloaded.close()
    made, *error = found.cells[0].text.split()
    assert MOST_OF_KERNEL - 500 < int(made) < MOST_OF_KERNEL and error == ["OSError", "24"]


ENDED_EARLY = """
import os, signal
from labkit.grading.sandbox import rank_namespaces
spawn, ended = os.posix_spawn, []
def spawn_and_end(*arguments, **options):
    pid = spawn(*arguments, **options)
    if len(ended) < 2:  # as whoever ends a case does, between the two forks
        ended.append(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return pid
rank_namespaces.os.posix_spawn = spawn_and_end
rank_namespaces.RankNamespaces._become_rank = lambda self, said: os._exit(7)
namespaces = rank_namespaces.RankNamespaces(1 << 20)
for _ in range(2):
    pid = namespaces.fork()
    _, status = os.waitpid(pid, 0)
    print(len(ended), namespaces.ended(pid, status))
"""


def test_a_namespace_whose_first_process_has_gone_is_made_again() -> None:
    inside = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    ran = subprocess.run([*inside, sys.executable, "-c", ENDED_EARLY], capture_output=True, text=True, timeout=300)
    assert (ran.stdout, ran.stderr) == ("2 7\n2 7\n", "")


@pytest.mark.in_turn
def test_what_ranks_can_read_of_labkit_imports_nothing_that_they_cannot() -> None:
    there = runtime()
    files = [path for each in there for path in ([each] if each.is_file() else sorted(each.rglob("*.py")))]
    names = {".".join(("labkit", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in files}
    names |= {name.removesuffix(".__init__") for name in names}
    missing = []
    for path in files:
        if path.name == "__init__.py" and path.parent == PACKAGE:
            continue  # its names are resolved when they are asked for
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit."):
                missing += [f"{path.name}: {node.module}"] * (str(node.module) not in names)
    assert missing == []


def test_a_sandbox_starts_and_reads_its_own_files_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with open(os.devnull, "wb") as null:
            reads = ["/bin/sh", "-c", "cat /etc/passwd /etc/hosts /proc/loadavg; ls /proc/sys/fs"]
            command = bubblewrap.Sandbox(tmp_path).command(reads, {"PATH": "/usr/bin:/bin"}, null.fileno())
            done = subprocess.run(command, pass_fds=[null.fileno()], capture_output=True, text=True)
    finally:
        os.umask(before)
    assert done.returncode == 0 and "student" in done.stdout and "localhost" in done.stdout, done.stderr
