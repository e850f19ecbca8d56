"""What breaks: failures of a run, the disk it writes to, how it is restarted, and what clusters reported."""

from labkit.failures.policies import Policy, Replayed, interruptions, replay_policy, young_interval_s
from labkit.failures.published import Published, published, replay, rows
from labkit.failures.records import Cut, Failure, Flip, Full, Hang, Kill, Pause, PowerCut, Slow
from labkit.failures.settings import Disk, Restarts

__all__ = [
    "Cut",
    "Disk",
    "Failure",
    "Flip",
    "Full",
    "Hang",
    "Kill",
    "Pause",
    "Policy",
    "PowerCut",
    "Published",
    "Replayed",
    "Restarts",
    "Slow",
    "interruptions",
    "published",
    "replay",
    "replay_policy",
    "rows",
    "young_interval_s",
]
