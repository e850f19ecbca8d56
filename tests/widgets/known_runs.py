"""Programs whose ranks wait for a known reason, and the sentences that are right and wrong above their timelines.

What a rank computes is a sleep in virtual time, a few percent longer or shorter by the seed: another seed is the same
program with other noise.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

import labkit
from labkit.errors import LabkitError
from labkit.timeline import Timeline
from tests.widgets import known_messages as messages
from tests.widgets import known_steps as steps
from tests.widgets.known_messages import Works

SILENT = r"^$|^(\d+ of \d+ ranks waits?|Every rank waits)\b|^Communication takes|^Computation hides"
"""Sentences that blame nobody."""
WRONG = {
    "pipeline": r" last;| works;|^Deadlock|still wait",
    "deadlock": r" last;| works;|bubble|blocked|^$|^Communication|^Computation",
    "server": r" last;|bubble|^Deadlock|still wait|^Rank [1-3]",
    "ring": r"^Ranks? \d|bubble|^Deadlock",
    "late": r"^Ranks \d|bubble|^Deadlock|still wait",
    "alike": r"^Rank \d|bubble|^Deadlock|still wait",
    "noise": r"^Ranks? \d|bubble|^Deadlock",
    "link": r"^Ranks? \d|bubble|^Deadlock",
}
"""Sentences that are wrong over every run of a kind, whatever its noise."""


@dataclass(frozen=True)
class Known:
    """A program of known kind.

    Attributes:
        kind: One of those of WRONG.
        program: Called on every rank with its Works.
        ranks: How many.
        right: What the sentence must match.
        noise: By how much a stretch of work may be longer or shorter than its mean, as a share of it.
        world: More for labkit.virtual.
    """

    kind: str
    program: Callable[[Works], None]
    ranks: int
    right: str = SILENT
    noise: float = 0.05
    world: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the program's name, in words, and how many ranks run it."""
        return f"{self.program.__name__}_{self.ranks}"


def timeline_of(known: Known, seed: int) -> Timeline:
    """Return the timeline of a run with this noise, to its end or its error."""

    def everywhere() -> None:
        draw = random.Random(1000 * seed + dist.get_rank())

        def works(milliseconds: float) -> None:
            time.sleep(milliseconds / 1e3 * (1 + known.noise * draw.uniform(-1, 1)))

        known.program(works)

    try:
        done = labkit.run(everywhere, on=labkit.virtual(known.ranks, seed=seed, **known.world), echo=False)
    except LabkitError as error:
        timeline = error.timeline
    else:
        timeline = done.timeline
    assert timeline is not None
    return timeline


_DEADLOCK = "^Deadlock: ranks {} wait for each other{}$"
_BUBBLE = "^The pipeline's bubble: stages stand idle "
_LATE = "^Rank {} comes last; the others? waits? .* for it$|^Rank {} comes last; rank . waits .* for it$"
_GROUP = "^Ranks {} come last; the others wait .* for them$"
_ALONE = "^Rank 0 works; the others wait "
_SLOW: Mapping[str, Any] = {"slow_links": {(1, 2): 5.0}}
KNOWN = (
    *(Known("pipeline", messages.one_microbatch, ranks, _BUBBLE) for ranks in (4, 8)),
    *(Known("pipeline", messages.forward_only, ranks, _BUBBLE) for ranks in (3, 4)),
    Known("pipeline", messages.one_microbatch_then_a_barrier, 4, _BUBBLE),
    *(Known("pipeline", messages.gpipe, ranks, _BUBBLE) for ranks in (3, 4)),
    Known("pipeline", messages.one_forward_one_backward, 4, _BUBBLE),
    Known("pipeline", messages.twice_round, 4, _BUBBLE),
    Known("pipeline", messages.two_pipelines, 8, _BUBBLE),
    Known("pipeline", messages.a_long_stage, 4, _BUBBLE),
    *(Known("pipeline", program, 2) for program in (messages.one_microbatch, messages.forward_only, messages.gpipe)),
    Known("deadlock", messages.all_receive_first, 2, _DEADLOCK.format("0 and 1", "")),
    Known("deadlock", messages.all_receive_first, 4, _DEADLOCK.format("0, 1, 2 and 3", "")),
    Known("deadlock", messages.all_send_first, 3, _DEADLOCK.format("0, 1 and 2", "")),
    Known("deadlock", messages.all_wait_for_what_nobody_sent, 3, _DEADLOCK.format("0, 1 and 2", "")),
    Known("deadlock", messages.orders_differ, 3, "^Rank 0 calls all_reduce where rank 1 calls broadcast$"),
    Known("deadlock", messages.two_wait_for_each_other, 4, _DEADLOCK.format("1 and 2", ", the others for them")),
    Known("deadlock", messages.forgets_to_send, 3, _DEADLOCK.format("0 and 1", ", rank 2 for them")),
    Known("deadlock", messages.one_leaves_early, 4, "^Ranks 0, 1 and 3 still wait for rank 2 at the end$"),
    Known("deadlock", messages.one_skips_the_barrier, 3, "^Ranks 0 and 2 still wait for rank 1 at the end$"),
    Known("deadlock", messages.one_fails, 2, "^Rank 0 still waits for rank 1 at the end$"),
    Known("deadlock", messages.nobody_sends, 4, "^Ranks 1, 2 and 3 still wait for rank 0 at the end$"),
    Known("server", messages.workers_of_a_late_one, 5, "^Rank 4 works; the others wait "),
    Known("server", messages.equal_workers, 5),
    Known("server", messages.who_comes_first_is_served, 5),
    Known("server", messages.a_busy_server, 5, _ALONE),
    Known("server", messages.sum_at_rank_0, 6, _ALONE),
    Known("ring", messages.late_in_a_ring, 4),
    *(Known("ring", messages.round_the_ring, ranks) for ranks in (4, 8)),
    Known("ring", messages.odd_ranks_work_longer, 4),
    Known("ring", messages.up_a_tree, 8),
    *(Known("late", steps.one_late, ranks, _LATE.format(1, 1)) for ranks in (2, 4, 8)),
    *(Known("late", steps.one_late, ranks, _LATE.format(1, 1), noise=0.2) for ranks in (2, 4)),
    Known("late", steps.one_a_little_late, 4, _LATE.format(1, 1)),
    Known("late", steps.late_to_scatter_and_gather, 4, _LATE.format(1, 1)),
    Known("late", steps.late_with_sharded_layers, 4, _LATE.format(3, 3)),
    Known("late", steps.late_with_buckets, 4, _LATE.format(2, 2)),
    Known("late", steps.late_to_all_to_all, 4, _LATE.format(1, 1)),
    Known("late", steps.rank_0_alone_first, 4),
    Known("alike", steps.upper_half_late, 8, _GROUP.format("4, 5, 6 and 7")),
    Known("alike", steps.upper_half_late, 4, _GROUP.format("2 and 3")),
    Known("alike", steps.two_late, 8, _GROUP.format("1 and 5")),
    Known("alike", steps.three_late, 8, _GROUP.format("1, 4 and 6")),
    Known("alike", steps.two_late_by_different_times, 8),
    *(Known("alike", steps.one_early, ranks) for ranks in (4, 8)),
    Known("alike", steps.each_as_late_as_its_number, 8),
    *(Known("noise", steps.equal_steps, ranks, noise=noise) for ranks in (2, 4, 8) for noise in (0.05, 0.4)),
    *(Known("noise", steps.few_equal_steps, ranks, noise=0.3) for ranks in (2, 4, 8)),
    *(Known("noise", steps.a_slow_start, ranks) for ranks in (2, 4)),
    *(Known("noise", steps.in_turn_late, ranks) for ranks in (2, 4)),
    *(Known("noise", steps.writes_a_checkpoint, ranks) for ranks in (2, 4)),
    Known("noise", steps.late_from_the_middle_on, 4),
    Known("noise", steps.one_long_checkpoint, 4, "^3 of 4 ranks wait "),
    Known("noise", steps.loads_late_at_times, 8, "^7 of 8 ranks wait "),
    Known("noise", steps.two_faults_at_once, 8, "^7 of 8 ranks wait"),
    Known("noise", steps.two_late_by_turns, 4),
    Known("noise", steps.groups_of_two, 4),
    *(Known("link", messages.bytes_round, ranks, world=_SLOW) for ranks in (4, 8)),
    Known("link", steps.steps_over_a_slow_link, 4, world=_SLOW),
    Known("link", steps.sums_alone, 4),
    Known("link", steps.hidden_sums, 4),
)
