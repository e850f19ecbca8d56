"""Hostile and broken answers to exercise double (double a number) of the small lesson, and what they are after.

An attack that looks for something it must not have answers right if it finds it, and wrong if it does not: a point
earned is a way through. None of them knows how to double a number otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """What attacks look for.

    Attributes:
        course: The course, with hidden cases and checks.
        submissions: What the others handed in.
        out: Where reports and the gradebook are written.
        outside: A folder in which nobody but we may write.
        port: Where a service of the host listens on 127.0.0.1.
        pid: The grader's process id.
    """

    course: Path
    submissions: Path
    out: Path
    outside: Path
    port: int
    pid: int


def wins_if(condition: str, before: str = "") -> str:
    """Return an answer that is right where `condition` holds, or does not raise, when the cell and the case run."""
    indented = "".join(f"    {line}\n" for line in before.splitlines())
    return (
        f"import os, sys, glob, ctypes\ndef attempt():\n{indented}    return bool({condition})\n"
        "def double(x):\n"
        "    try:\n        return x * 2 if attempt() else 0\n"
        "    except Exception:\n        return 0\n"
        "try: attempt()\nexcept Exception: pass\n"
    )


def tries(action: str) -> str:
    """Return a wrong answer that does `action` both when its cell and when a case runs."""
    body = "".join(f"    {line}\n" for line in action.splitlines())
    return (
        f"import os, sys, time, signal, ctypes\ndef harm():\n{body}def double(x):\n    harm()\n    return 0\nharm()\n"
    )


def in_case(action: str, result: str = "0") -> str:
    """Return a wrong answer that does `action` when a case runs."""
    body = "".join(f"    {line}\n" for line in action.splitlines())
    return f"import os, sys, time, signal, ctypes\ndef double(x):\n{body}    return {result}\n"


EQUAL = (
    "    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    __hash__ = int.__hash__\n"
)

PATCHES = {
    "patches-labkit": (
        "import labkit.checks.exercise as e, labkit.checks.verdict as v\n"
        "e.judge = lambda *a: v.Verdict(True)\ndef double(x):\n    return 0\n"
    ),
    "patches-torch": (
        "import torch\ntorch.equal = torch.allclose = lambda *a, **k: True\n"
        "torch.Tensor.__eq__ = lambda *a: True\ndef double(x):\n    return 0\n"
    ),
    "patches-numpy": (
        "import numpy\nnumpy.allclose = numpy.array_equal = lambda *a, **k: True\n"
        "numpy.testing.assert_allclose = lambda *a, **k: None\ndef double(x):\n    return 0\n"
    ),
    "patches-builtins": (
        "import builtins\nbuiltins.all = builtins.any = builtins.bool = lambda *a: True\n"
        "builtins.isinstance = lambda *a: True\ndef double(x):\n    return 0\n"
    ),
    "patches-sys-modules": (
        "import sys, types\nclass Yes(types.ModuleType):\n    def __getattr__(self, name): return lambda *a, **k: True\n"
        "for name in ('unittest', 'pytest', 'nose.tools', 'labkit.checks.verdict', 'labkit.grading.score'):\n"
        "    sys.modules[name] = Yes(name)\ndef double(x):\n    return 0\n"
    ),
    "patches-the-driver": (
        "import gc, types\nfor each in gc.get_objects():\n"
        "    if isinstance(each, types.FunctionType) and each.__name__ in ('encode', 'judge', 'call_double'):\n"
        "        each.__code__ = (lambda *a, **k: b'').__code__ if each.__closure__ is None else each.__code__\n"
        "def double(x):\n    return 0\n"
    ),
    "equal-to-everything": f"class Same:\n{EQUAL.replace('int.__hash__', 'object.__hash__')}def double(x):\n    return Same()\n",
    "number-equal-to-everything": f"class Same(int):\n{EQUAL}def double(x):\n    return Same(5)\n",
    "claims-it-passed": "def double(x):\n    return True\n",
    "raises-what-is-expected": "def double(x):\n    raise AssertionError('expected and got agree: passed')\n",
    "exception-that-cannot-be-printed": (
        "class Bad(Exception):\n    def __str__(self): raise SystemExit(0)\n    __repr__ = __str__\n"
        "def double(x):\n    raise Bad\n"
    ),
}  # fmt: skip

ENDINGS = {
    "sys-exit": "import sys\nsys.exit(0)\n",
    "os-exit": tries("os._exit(0)"),
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef double(x):\n    return 0\n",
    "kills-its-parent": in_case("os.kill(os.getppid(), 9)"),
    "kills-its-group": in_case("os.killpg(0, 9)"),
    "kills-everybody": tries("os.kill(-1, 9)"),
    "restarts-the-kernel": (
        "def double(x):\n    return 0\nfrom IPython import get_ipython\nif get_ipython():\n"
        "    get_ipython().kernel.do_shutdown(True)\n    import os, sys\n    os.execv(sys.executable, [sys.executable])\n"
    ),
    "endless-loop-in-C": tries("import itertools\nmax(itertools.count())"),
    "loop-ignoring-signals": in_case(
        "for n in set(range(1, 65)) - {9, 19, 32, 33}:\n    signal.signal(n, signal.SIG_IGN)\nwhile True: pass"
    ),
    "sleeps-past-the-limit": in_case("signal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(3600)"),
    "deep-recursion-in-C": "def double(x):\n    exec('(' * 5000 + ')' * 5000)\n",
}

FLOODS = {
    "fork-bomb": tries("while True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)"),
    "thread-bomb": tries(
        "import threading\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n"
        "    except RuntimeError: time.sleep(3600)"
    ),
    "memory-hog": tries("held = [bytearray(b'x' * (1 << 29)) for _ in range(64)]"),
    "memory-hog-in-many-processes": tries(
        "for _ in range(20):\n    if os.fork() == 0:\n        held = bytearray(b'x' * (300 << 20))\n"
        "        time.sleep(3600)\ntime.sleep(3600)"
    ),
    "one-gigabyte-of-output": tries("for _ in range(16384):\n    os.write(1, b'x' * 65536)\n    print('y' * 65536)"),
    "floods-its-kernels-messages": (
        "from ipykernel.kernelapp import IPKernelApp\nlarge = [b'p' * 7_000_000] * 64\n"
        "while True: IPKernelApp.instance().iopub_socket.send_multipart(large)\n"
    ),
    "fills-the-disk": tries(
        "for n in range(1000):\n    for folder in ('/tmp', '/dev/shm', '/run', '/var/tmp', '.'):\n"
        "        try: open(f'{folder}/fill{n}', 'wb').write(b'x' * (64 << 20))\n        except OSError: pass"
    ),
    "a-million-files": tries("for n in range(200000):\n    try: open(f'/tmp/{n}', 'w')\n    except OSError: break"),
    "orphans-and-daemons": tries(
        "for _ in range(5):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            time.sleep(3600)\n        os._exit(0)"
    ),
    "announces-a-petabyte": in_case("import struct\nfor fd in (3, 4):\n    os.write(fd, struct.pack('<IQ', 2, 1 << 50) + b'{}')"),
    "garbage-on-every-descriptor": in_case(
        "for fd in range(1, 64):\n    try: os.write(fd, os.urandom(4096))\n    except OSError: pass"
    ),
    "html-and-escapes-in-errors": "def double(x):\n    raise ValueError('</pre><script>alert(1)</script>\\x1b[2J\\u202e')\n",
}  # fmt: skip

FORGERIES = {
    "forged-result": in_case(
        "import json, struct\nhead = json.dumps({'passed': True, 'score': 100, 'failure': None}).encode()\n"
        "for fd in range(3, 64):\n    try: os.write(fd, struct.pack('<IQ', len(head), 4) + head + b'LKV1')\n"
        "    except OSError: pass\nos._exit(0)"
    ),
    "forged-pickle": in_case(
        "import json, pickle, struct\nclass Run:\n    def __reduce__(self): return os.system, ('touch /tmp/owned',)\n"
        "data, head = pickle.dumps(Run()), json.dumps({'failure': None}).encode()\n"
        "os.write(4, struct.pack('<IQ', len(head), len(data)) + head + data)\nos._exit(0)"
    ),
    "forged-timeline": (
        "import labkit\nclass Timeline:\n    makespan_ns = 1\n    problems = ()\n"
        "labkit.Timeline = Timeline\nlabkit.check = lambda *a: 'passed'\ndef double(x):\n    return 0\n"
    ),
    "forged-kernel-replies": (
        "def double(x):\n    return 0\nfrom IPython import get_ipython\nif get_ipython():\n"
        "    kernel = get_ipython().kernel\n    for _ in range(2000):\n"
        "        kernel.session.send(kernel.iopub_socket, 'execute_reply', {'status': 'ok', 'score': 100, 'a': [[[{}]]]})\n"
        "    kernel.session.send(kernel.iopub_socket, 'comm_open', {'comm_id': 'x', 'data': {'y': 'z' * (40 << 20)}})\n"
    ),
}


def searches(places: Places) -> Mapping[str, str]:
    """Return the attacks that look for something, or want to leave something."""
    hidden = places.course / "exercises" / "small" / "double" / "hidden.py"
    checks = places.course / "exercises" / "small" / "double" / "exercise.py"
    note = places.outside / "written"
    return {
        "reads-hidden-cases": wins_if(f"open({str(hidden)!r}).read()"),
        "reads-the-checks": wins_if(f"open({str(checks)!r}).read()"),
        "finds-the-oracle-in-memory": wins_if(
            "found or [m for m in sys.modules if m.startswith(('course_exercises.', 'labkit.exercises.')) and m.endswith('.exercise')]",
            "import gc, types\nfound = [f for f in gc.get_objects() if isinstance(f, types.FunctionType) "
            "and ('oracle' in f.__name__ or f.__name__ == 'finding')]",
        ),
        "imports-closed-answers": wins_if("EXERCISE", "from labkit.exercises.ring_all_reduce.ring_sum.exercise import EXERCISE"),
        "lends-itself-an-answer": wins_if(
            "space.keys() & {'double', 'naive_all_reduce'}",
            "import labkit, torch\nspace = {'torch': torch, 'dist': torch.distributed}\n"
            f"for folder in ({str(places.course)!r}, '/tmp'):\n    try: os.chdir(folder)\n    except OSError: continue\n"
            "    for slug in ('double', 'naive_all_reduce'):\n        try: labkit.lend(slug, space)\n"
            "        except Exception: pass"
        ),
        "reads-the-keys-of-questions": wins_if(
            "any(open(path).read() for path in found)",
            "import labkit\nfound = [f'{folder}/{name}' for top in (os.path.dirname(labkit.__file__), "
            f"{str(places.course)!r}) for folder, _, names in os.walk(top) for name in names if name == 'key.json']"
        ),
        "reads-other-submissions": wins_if(f"os.listdir({str(places.submissions)!r})"),
        "reads-the-gradebook": wins_if(f"os.listdir({str(places.out)!r})"),
        "writes-the-gradebook": wins_if(f"open({str(places.out / 'gradebook.csv')!r}, 'a').write('me,100')"),
        "writes-outside": wins_if(
            "done", "done = 0\n"
            f"for path in ({str(note)!r}, '/usr/lib/x', '/etc/x', '/opt/x', sys.prefix + '/x'):\n"
            "    try: open(path, 'a').write('x'); done += 1\n    except OSError: pass"
        ),
        "reads-the-environment": wins_if("'LABKIT_TEST_SECRET' in os.environ or b'LABKIT_TEST_SECRET' in seen",
            "seen = b''\nfor path in glob.glob('/proc/[0-9]*/environ'):\n    try: seen += open(path, 'rb').read()\n"
            "    except OSError: pass"
        ),
        "looks-at-other-processes": wins_if(
            f"os.path.exists('/proc/{places.pid}') or len([p for p in os.listdir('/proc') if p.isdigit()]) > 40"
        ),
        "reads-its-parents-memory": wins_if("open('/proc/1/mem', 'rb') and open('/proc/1/maps').read()"),
        "traces-its-parent": wins_if("ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0"),
        "makes-links": wins_if(
            "os.path.getsize('/tmp/soft') or os.path.getsize('/tmp/hard')",
            f"os.path.lexists('/tmp/soft') or os.symlink({str(hidden)!r}, '/tmp/soft')\nos.link('/tmp/soft', '/tmp/hard')",
        ),
        "mounts-and-namespaces": wins_if(
            "libc.unshare(0x10000000) == 0 or libc.mount(b'none', b'/tmp', b'tmpfs', 0, 0) == 0 or libc.chroot(b'/') == 0",
            "libc = ctypes.CDLL(None)",
        ),
        "lifts-its-limits": wins_if(
            "resource.getrlimit(resource.RLIMIT_NPROC)[1] == -1",
            "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (-1, -1))",
        ),
        "talks-to-a-service-of-the-host": wins_if(
            f"socket.create_connection(('127.0.0.1', {places.port}), 2)", "import socket"
        ),
        "talks-to-the-internet": wins_if("socket.create_connection(('1.1.1.1', 53), 2)", "import socket"),
    }  # fmt: skip


PAST_THE_RELAY = {
    # What total must build of send and recv, over a collective of the library that hides its name.
    "calls-the-library": "def total(x):\n    dist.all_reduce(x)\n",
    "library-past-the-record": (
        "import gc\nfrom labkit.grading.relay.client import RelayClient\n"
        "def total(x):\n"
        "    client = next(each for each in gc.get_objects() if isinstance(each, RelayClient))\n"
        "    post = client.post_collective\n"
        "    client.post_collective = lambda header, read: post({**header, 'count': False, 'name': 'barrier'}, read)\n"
        "    dist.all_reduce(x)\n"
    ),
    "ranks-talk-over-files": (
        "import os, time\ndef total(x):\n    rank, n = dist.get_rank(), dist.get_world_size()\n"
        "    for folder in ('/tmp', '/dev/shm', '/run', '.'):\n"
        "        try: torch.save(x.clone(), f'{folder}/part{rank}')\n        except Exception: pass\n"
        "    end = time.time() + 1.5\n    total = x.clone()\n"
        "    for peer in set(range(n)) - {rank}:\n"
        "        while time.time() < end:\n"
        "            try: total += torch.load(f'/tmp/part{peer}'); break\n            except Exception: time.sleep(0.05)\n"
        "    x.copy_(total)\n"
    ),
    "ranks-talk-over-sockets": (
        "import socket\ndef total(x):\n    rank, n = dist.get_rank(), dist.get_world_size()\n"
        "    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n    own.bind(f'\\0labkit-test-{rank}')\n"
        "    own.settimeout(1.5)\n"
        "    for peer in set(range(n)) - {rank}: own.sendto(x.numpy().tobytes(), f'\\0labkit-test-{peer}')\n"
        "    for _ in range(n - 1): x += torch.frombuffer(bytearray(own.recv(4096)), dtype=x.dtype)\n"
    ),
}


def attacks(places: Places) -> dict[str, dict[str, str]]:
    """Return for each attack its answers, by exercise."""
    on_double = {**PATCHES, **ENDINGS, **FLOODS, **FORGERIES, **searches(places)}
    return {name: {"double": source} for name, source in on_double.items()} | {
        name: {"total": source} for name, source in PAST_THE_RELAY.items()
    }
