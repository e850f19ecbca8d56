"""Where things lie in a rank's event log file: fixed records that survive SIGKILL, read while the rank still runs.

::

    0        header: magic, rank, process id, times, counts           (one page)
    4096     wait slots: what each blocked thread waits in            (32 x 64 bytes)
    8192     names: length-prefixed UTF-8, interned in order          (1 MiB)
    1056768  records: 72 bytes each, the state byte written last

The file is sparse: only pages that were written take space. All times are ``time.monotonic_ns()``, which processes of
one Linux host share.
"""

from __future__ import annotations

from struct import Struct

import numpy as np

MAGIC = b"LABKIT01"
PAGE = 4096

HEADER = Struct("<8siiqqqqq")
"""magic, rank, process id, started_ns, closed_ns (0 while open), records begun, records dropped, bytes of names."""
CLOSED_AT = 24
BEGUN_AT = 32
DROPPED_AT = 40
NAME_BYTES_AT = 48
DEVICE_ERROR = Struct("<q")
DEVICE_ERROR_AT = 56
"""By how many nanoseconds times of the device may be off those of the host."""

WAIT = Struct("<qqiIIIIiqi")
"""since_ns (0: not waiting), bytes, peer, operation, group, source, thread, tag, record, root."""
WAITS_AT = PAGE
WAIT_BYTES = 64
NUM_WAITS = 32

NAMES_AT = 2 * PAGE
NAME_BYTES = 1 << 20
NAME_LENGTH = Struct("<I")

RECORDS_AT = NAMES_AT + NAME_BYTES
RECORD = Struct("<qqqqiiIIIIIIHBB")
RECORD_END = Struct("<q")
END_OFFSET = 8
FLAGS = Struct("<HBB")
FLAGS_OFFSET = 64
PEER = Struct("<i")
PEER_OFFSET = 32
LINK_OFFSET = 24
NUMBER = Struct("<I")
NUMBER_OFFSET = 52
RECORD_BYTES = 72
DTYPE = np.dtype(
    {
        "names": [
            *("start", "end", "bytes", "link", "peer", "tag", "kind", "name", "group", "number", "source", "thread"),
            *("flags", "lane", "state"),
        ],
        "formats": ["<i8"] * 4 + ["<i4"] * 2 + ["<u4"] * 6 + ["<u2", "u1", "u1"],
        "offsets": [0, 8, 16, 24, 32, 36, 40, 44, 48, 52, 56, 60, 64, 66, 67],
        "itemsize": RECORD_BYTES,
    }
)

EMPTY, OPEN, DONE = 0, 1, 2

BLOCKING = 1
"""The caller stayed in the call until it was complete."""
FAILED = 2
"""The call raised."""
BUFFER_CHANGED = 4
"""The buffer of an isend was written before wait()."""
NOT_WAITED = 8
"""A point-to-point call whose wait() has not returned."""
DEVICE_TIME = 16
"""Begin and end are times of the device (CUDA events), not of the caller."""
IN_CALLBACK = 32
"""A wait inside a callback of a future."""
ALONGSIDE = 64
"""No span: another call that a wait for several was for; its number is the index of that wait's record."""
BATCHED = 128
"""A message that was posted together with others, by dist.batch_isend_irecv."""
NO_SPAN = 256
"""Is on the timeline while it lasts, not once it is over: ranks that make a group, or ask a store."""

CHUNK = 1 << 20
"""Disk space is claimed in pieces of this size, so that a full disk drops records and never kills the rank."""
