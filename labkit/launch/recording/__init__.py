"""Recording what a rank's torch.distributed calls really did, and reading it back in the parent.

In a rank, before user code: :func:`install`; after it: :func:`close`; named regions: :func:`span`. In the parent,
at any time, also after the rank was killed: :func:`read_log`, and :func:`assemble` for the timeline of all ranks.
"""

from __future__ import annotations

from labkit.launch.recording.assemble import assemble
from labkit.launch.recording.install import close, install, span, unrecorded
from labkit.launch.recording.read import RankLog, Wait, read_log

__all__ = ["RankLog", "Wait", "assemble", "close", "install", "read_log", "span", "unrecorded"]
