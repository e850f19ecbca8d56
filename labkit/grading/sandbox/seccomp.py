"""What a submission's processes may not ask of the kernel: calls that no lesson needs and holes were found in.

The filter is libseccomp's, which bubblewrap's distributions all have; a call that is cut says EPERM, as it would to any
process without rights. Sources: Docker's default profile and flatpak's, which cut much the same.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from itertools import pairwise, product

from labkit.errors import EnvironmentProblem

LIBRARY = "libseccomp.so.2"
_CUT = (
    "acct", "add_key", "adjtimex", "bpf", "clock_adjtime", "clock_settime", "create_module", "delete_module",
    "fanotify_init", "fanotify_mark", "finit_module", "flock", "fsconfig", "fsmount", "fsopen", "fspick",
    "get_kernel_syms", "init_module", "inotify_add_watch", "inotify_init", "inotify_init1", "ioperm", "iopl", "kcmp",
    "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "memfd_secret", "mincore", "mount", "mount_setattr",
    "move_mount", "name_to_handle_at", "nfsservctl", "open_by_handle_at", "open_tree", "perf_event_open",
    "pidfd_getfd", "pivot_root", "process_madvise", "ptrace", "query_module", "quotactl", "quotactl_fd", "reboot",
    "request_key", "sched_setaffinity", "setdomainname", "sethostname", "setns", "settimeofday", "stime", "swapoff",
    "swapon", "sysfs", "syslog", "umount", "umount2", "unshare", "uselib", "userfaultfd", "ustat", "vhangup", "vm86",
    "vm86old",
)  # fmt: skip
_NOT_THERE = ("clone3", "io_setup", "io_uring_setup", "io_uring_enter", "io_uring_register", "pidfd_open")
"""They say ENOSYS, which makes a C library take the older call."""
_NEWER_NOT_THERE = {"futex_waitv": 449, "cachestat": 451, "futex_wake": 454, "futex_wait": 455, "futex_requeue": 456}
"""So do these, which libseccomp may not know by name; their numbers are the same on every machine."""
_FCNTL = {"F_GETLK": 5, "F_OFD_GETLK": 36, "F_SETLEASE": 1024, "F_NOTIFY": 1026}
"""What asks who else has a lock on a file, or watches it. A lock that no other sandbox can ask for may stay."""
_DONTNEED, _COLD, _PAGEOUT, _NOWAIT = 4, 20, 21, 8
"""What drops a file's pages from memory, and what tells whether they are there."""
_MERGEABLE, _PR_SET_MEMORY_MERGE = 12, 67
"""What has the system look for equal pages of other processes; a write to one takes longer where there is one."""
_CLONE_PIDFD = 0x1000
_SOL_SOCKET, _TELLING_OPTIONS = 1, (57, 71, 76, 77)
"""Of sockets, the numbers that the kernel counts for the whole machine: cookies, and descriptors of processes."""
_WAIT = 0
"""So threads wait for what C++ makes once (libstdc++'s guards), and the one that makes it wakes them as another process
could. Whom nobody may wake is told to look again, and does not sleep."""
_WAKES = (1, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13)
_COMMAND_AND_PRIVATE = 0x7F | 0x80
"""Of a futex call, what it does, and whether for one process alone."""
_NETLINK = 16
_FAMILIES = 1, 2, 10, _NETLINK
"""Sockets there are: local, IPv4, IPv6, and what lists the interfaces (of which protocol 0 alone: 4 lists sockets)."""
_COUNTED = "accept", "accept4", "memfd_create", "mq_open", "pipe", "pipe2", "setsid", "shmget", "socketpair"
"""Calls that take a number which the kernel gives out for the whole machine (of an inode, a session)."""
_SEND_DESCRIPTORS, _F_SETPIPE_SZ = ("sendmsg", "sendmmsg"), 1031
"""What fills a bound that all processes of a user share: descriptors on their way, and the size of pipes."""
_MAP_SHARED, _MAP_HUGETLB = 0x1, 0x40000
_NEW_NAMESPACES = 0x7E020000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_ALLOW, _ASK, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000
_NOT_EQUAL, _EQUAL, _GREATER, _MASKED_EQUAL = 1, 4, 6, 7


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint), ("operation", ctypes.c_int),
        ("first", ctypes.c_uint64), ("second", ctypes.c_uint64),
    )  # fmt: skip


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise EnvironmentProblem(f"{LIBRARY} is not installed (Debian, Ubuntu: apt install libseccomp2)") from None
    library.seccomp_init.restype = ctypes.c_void_p
    for name in (
        "seccomp_load",
        "seccomp_release",
        "seccomp_export_bpf",
        "seccomp_rule_add_array",
        "seccomp_notify_fd",
    ):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(_Comparison),
    ]  # fmt: skip
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    return library


def prepare() -> None:
    """Make the filters now, so that forks need not."""
    for counted in (False, True):
        _filter(False, False, counted)
    for on_gpu, counted in product((False, True), repeat=2):
        _filter(True, on_gpu, counted)
    _filter_of_sending()


def problem() -> str:
    """Return why no filter can be made here, or ""."""
    try:
        _library()
    except EnvironmentProblem as error:
        return str(error)
    return ""


@cache
def _filter(of_rank: bool, on_gpu: bool, counted: bool, /) -> int:
    """Return libseccomp's handle of a filter; it is kept for as long as the process lives.

    All say all three by place: what is kept is found by how it was asked for.

    Args:
        of_rank: Whether nothing may wake another process by a futex, or ask how many threads the machine has. Python's
            processes wake each other, and a notebook may start some; a rank has none.
        on_gpu: Whether CUDA runs there, which asks for the machine's memory.
        counted: Whether calls that take a number of the machine's ask first; see counted_calls.py.
    """
    library = _library()
    found = library.seccomp_init(_ALLOW)
    for name in _CUT:
        _cut(found, name, errno.EPERM)
    for name in _NOT_THERE:
        _cut(found, name, errno.ENOSYS)
    for name, number in _NEWER_NOT_THERE.items():
        _cut(found, name, errno.ENOSYS, number=number)
    _cut_what_tells_of_others(found)
    if of_rank:
        if not on_gpu:
            _cut(found, "sysinfo", errno.EPERM)
        _cut(found, "fcntl", errno.EPERM, _Comparison(1, _MASKED_EQUAL, 0xFFFFFFFF, _F_SETPIPE_SZ))
        for wake in _WAKES:
            _cut(found, "futex", errno.EPERM, _Comparison(1, _MASKED_EQUAL, _COMMAND_AND_PRIVATE, wake))
        _cut(found, "futex", errno.EAGAIN, _Comparison(1, _MASKED_EQUAL, _COMMAND_AND_PRIVATE, _WAIT))
    for bit in (1 << at for at in range(32) if _NEW_NAMESPACES >> at & 1):
        _cut(found, "clone", errno.EPERM, _Comparison(0, _MASKED_EQUAL, bit, bit))
    for request in (_TIOCSTI, _TIOCLINUX):
        _cut(found, "ioctl", errno.EPERM, _Comparison(1, _MASKED_EQUAL, 0xFFFFFFFF, request))
    for low, high in pairwise(_FAMILIES):
        for family in range(low + 1, high):
            _cut(found, "socket", errno.EAFNOSUPPORT, _Comparison(0, _EQUAL, family, 0))
    _cut(found, "socket", errno.EAFNOSUPPORT, _Comparison(0, _GREATER, _FAMILIES[-1], 0))
    other = _Comparison(0, _EQUAL, _NETLINK, 0), _Comparison(2, _NOT_EQUAL, 0, 0)
    _cut(found, "socket", errno.EPROTONOSUPPORT, *other)
    if counted:
        _ask_for_counted(found)
    return int(found)


def _ask_for_counted(found: int) -> None:
    for name in _COUNTED:
        _rule(found, _ASK, name)
    for family in _FAMILIES[:-1]:
        _rule(found, _ASK, "socket", _Comparison(0, _EQUAL, family, 0))
    _rule(found, _ASK, "socket", _Comparison(0, _EQUAL, _NETLINK, 0), _Comparison(2, _EQUAL, 0, 0))
    _rule(found, _ASK, "mmap", _Comparison(3, _MASKED_EQUAL, _MAP_SHARED | _MAP_HUGETLB, _MAP_SHARED))
    _cut(found, "mmap", errno.ENOMEM, _Comparison(3, _MASKED_EQUAL, _MAP_HUGETLB, _MAP_HUGETLB))


def _cut_what_tells_of_others(found: int) -> None:
    """Cut what would tell a sandbox of another one's locks, and of the files that others have in memory."""
    for command in _FCNTL.values():
        _cut(found, "fcntl", errno.EPERM, _Comparison(1, _MASKED_EQUAL, 0xFFFFFFFF, command))
    for advice in (_COLD, _PAGEOUT):
        _cut(found, "madvise", errno.EPERM, _Comparison(2, _MASKED_EQUAL, 0xFFFFFFFF, advice))
    _cut(found, "madvise", errno.EINVAL, _Comparison(2, _MASKED_EQUAL, 0xFFFFFFFF, _MERGEABLE))
    _cut(found, "prctl", errno.EINVAL, _Comparison(0, _MASKED_EQUAL, 0xFFFFFFFF, _PR_SET_MEMORY_MERGE))
    _cut(found, "clone", errno.EINVAL, _Comparison(0, _MASKED_EQUAL, _CLONE_PIDFD, _CLONE_PIDFD))
    for option in _TELLING_OPTIONS:
        for call in ("getsockopt", "setsockopt"):
            which = (_Comparison(at, _MASKED_EQUAL, 0xFFFFFFFF, value) for at, value in ((1, _SOL_SOCKET), (2, option)))
            _cut(found, call, errno.ENOPROTOOPT, *which)
    _cut(found, "fadvise64", errno.EPERM, _Comparison(3, _MASKED_EQUAL, 0xFFFFFFFF, _DONTNEED))
    _cut(found, "preadv2", errno.EOPNOTSUPP, _Comparison(5, _MASKED_EQUAL, _NOWAIT, _NOWAIT))


def _cut(found: int, name: str, error: int, *comparisons: _Comparison, number: int = -1) -> None:
    """Let a call say `error`; `number` is its own, where the library may not know its name."""
    _rule(found, _ERRNO | error, name, *comparisons, number=number)


def _rule(found: int, action: int, name: str, *comparisons: _Comparison, number: int = -1) -> None:
    library = _library()
    known = library.seccomp_syscall_resolve_name(name.encode())
    call = known if known >= 0 else number
    array = (_Comparison * max(1, len(comparisons)))(*comparisons)
    said = library.seccomp_rule_add_array(found, action, call, len(comparisons), array) if call >= 0 else 0
    if said:
        raise EnvironmentProblem(f"the filter for system calls could not be made ({name}: {os.strerror(-said)})")


def forbid_calls(of_rank: bool = False, on_gpu: bool = False) -> int:
    """Cut them for this process and all it starts, for good; it may get no new rights by then.

    Args:
        of_rank: Whether it is a rank of a hidden case.
        on_gpu: Whether that runs on a GPU.

    Returns:
        The descriptor on which counted calls ask; -1 where the system lets nobody be asked (something outside is asked
        already), and nothing is counted.

    Raises:
        OSError: If the system takes no filter.
    """
    library = _library()
    if not library.seccomp_load(asking := _filter(of_rank, of_rank and on_gpu, True)):
        return int(library.seccomp_notify_fd(asking))
    said = library.seccomp_load(_filter(of_rank, of_rank and on_gpu, False))
    if said:
        raise OSError(-said, f"seccomp: {os.strerror(-said)}")
    return -1


@cache
def _filter_of_sending() -> int:
    found = _library().seccomp_init(_ALLOW)
    for name in _SEND_DESCRIPTORS:
        _cut(found, name, errno.EPERM)
    return int(found)


def forbid_sending() -> None:
    """Cut for a rank, once it has sent the descriptor on which its calls ask, what sends descriptors.

    Raises:
        OSError: If the system takes no filter.
    """
    said = _library().seccomp_load(_filter_of_sending())
    if said:
        raise OSError(-said, f"seccomp: {os.strerror(-said)}")


def filter_file() -> int:
    """Return a descriptor from which bubblewrap reads the filter."""
    fd = os.memfd_create("seccomp")
    said = _library().seccomp_export_bpf(_filter(False, False, False), fd)
    if said:
        raise EnvironmentProblem(f"the filter for system calls could not be made ({os.strerror(-said)})")
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
