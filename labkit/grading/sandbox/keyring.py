"""The session keyring, which all processes of a login share, left behind."""

from __future__ import annotations

import ctypes
import errno
import os

_JOIN_SESSION_KEYRING = (250, 1) if os.uname().machine == "x86_64" else (219, 1)
_libc = ctypes.CDLL(None, use_errno=True)


def forget_keys() -> None:
    """Join a new, empty session keyring; for a process that is about to run a submission, or a program for one.

    Raises:
        OSError: If it cannot be done; where a system has no keyrings, or forbids them to us and so to what we start,
            there is nothing to forget.
    """
    if _libc.syscall(*_JOIN_SESSION_KEYRING, None) < 0:
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EPERM):
            raise OSError(number, f"keyctl: {os.strerror(number)}")
