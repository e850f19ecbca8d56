"""Imported by a process that others are forked from: what torch would load at first use, and none of its last words.

At the end of a process torch logs what it compiled, for which it imports a module for tables, and takes back each of
the 174 libraries of operators it has registered. Said at the end of every rank, that took longer than the rank itself.
"""

import atexit
import weakref
from typing import Any

import torch._dynamo.utils  # optimizers pull it in: 0.7 s

_finalizers: Any = weakref.finalize

atexit.unregister(torch._dynamo.utils.dump_compile_times)
for _each in list(_finalizers._registry):
    _each.atexit = False
