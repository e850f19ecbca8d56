"""Takes from every Python of a test run what only Linux has; `make test-elsewhere` puts this folder on the path."""

import os

for name in ("fork", "forkpty", "memfd_create", "pidfd_open", "sched_getaffinity", "sched_setaffinity"):
    if hasattr(os, name):
        delattr(os, name)
