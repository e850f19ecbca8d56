"""How a process of ours that touches what students made stops being root, where the grader was started as root."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from labkit.grading.sandbox.bubblewrap import throw_away_uid
from labkit.grading.sandbox.keyring import forget_keys

_PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 8, 38
_NEWNET = 0x40000000
_CAPABILITY_VERSION_3 = 0x20080522
_READ_ANY, _SETGID, _SETUID, _ADMIN = (1 << number for number in (2, 6, 7, 21))


def can_give_up_root() -> bool:
    """Return whether we are root, and may become somebody else: in some containers root may not."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    if not _may(_SETGID) or not _may(_SETUID) or Path("/proc/self/setgroups").read_text().strip() != "allow":
        return False
    uid = throw_away_uid()
    ranges = [list(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return any(first <= uid < first + count for first, _, count in ranges)


def give_up_root(may_read: bool = False) -> None:
    """Become a user who owns nothing, for good, and without a network where root may do that.

    Where we are not root, or may not become another, nothing changes; nor where a right that is asked for is not ours.

    Args:
        may_read: Keep the one right to read any file: of modules and hidden cases wherever they lie. It writes nothing.
    """
    if not can_give_up_root() or (may_read and not _may(_READ_ANY)):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    uid = throw_away_uid()
    forget_keys()
    if _may(_ADMIN):
        _did(libc.unshare(_NEWNET))
    _did(libc.prctl(_PR_SET_KEEPCAPS, int(may_read), 0, 0, 0))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    _did(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    kept = _READ_ANY if may_read else 0
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _did(libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)))


def _may(capability: int) -> bool:
    status = Path("/proc/self/status").read_text()
    return bool(int(status.split("CapEff:")[1].split()[0], 16) & capability)


def _did(said: int) -> None:
    if said < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"giving up the rights of root: {os.strerror(number)}")
