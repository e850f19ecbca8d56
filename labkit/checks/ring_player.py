"""``labkit.ring_player``: plans of a ring played step by step, or an all-reduce watched while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from labkit.errors import ConfigError
from labkit.plans.watched_ring import Watched, tagged
from labkit.widgets.explorer import Explorer
from labkit.widgets.ring_player import player_of_plans, player_of_run
from labkit.worlds import World, run

if TYPE_CHECKING:
    import torch

_MOST_RANKS = 8


def ring_player(
    plan: Callable[..., Any] | Sequence[Any] | None = None,
    *,
    num_ranks: int = 4,
    num_chunks: int = 0,
    on: World | None = None,
    num_bytes: float = 16e6,
    latency_s: float = 5e-6,
    bandwidth_Bps: float = 450e9,  # noqa: N803  B/s, the unit as the lessons write it
) -> Explorer:
    """Return a figure that plays an all-reduce step by step; what is wrong in it is red.

    Without an argument it plays the ring itself. Given a function that makes plans, it plays those of 2 to 8 ranks, all
    of them without a kernel. With `on` it runs an all-reduce once in that world, on numbers that say which chunk and
    whose they are, and shows what was really sent: step k of a rank is its k-th message.

    Args:
        plan: plan(rank, world_size) returns a rank's Send, Recv and Reduce records; or the plans of all ranks; or, with
            `on`, all_reduce(tensor), which sums in place and sends one chunk in each message.
        num_ranks: How many ranks to begin with, 2 to 16; with a plan 2 to 8.
        num_chunks: Pieces of the tensor, 1 to 16, of the ring itself; 0: as many as ranks, as in every plan and run.
        on: Where to run an all-reduce, such as labkit.virtual(4); 2 to 8 ranks.
        num_bytes: Size of the tensor for the times.
        latency_s: Latency of a message, in seconds.
        bandwidth_Bps: Rate of a link, bytes per second.

    Raises:
        ConfigError: If the plans are no lists of records, the ranks are too many, or messages are not one chunk each.
        RunError: If the run fails.
    """
    if on is None:
        return player_of_plans(plan, num_ranks, num_bytes, latency_s, bandwidth_Bps, num_chunks)
    if not callable(plan):
        raise ConfigError(
            "on= runs an all-reduce, so pass the function too: ring_player(ring_sum, on=labkit.virtual(4))."
        )
    size = on.world_size
    if not 2 <= size <= _MOST_RANKS:
        raise ConfigError(f"{size} ranks were asked for; the ring player shows 2 to {_MOST_RANKS}.")
    done = run(_watched, plan, on=on, echo=False)
    for rank, (sent, _) in enumerate(done.results):
        lengths = {len(values) for _, _, values in sent}
        if lengths != {1}:
            what = f"messages of {' and '.join(map(str, sorted(lengths)))} chunks" if lengths else "no message"
            raise ConfigError(
                f"Rank {rank} sent {what}; the ring player shows rings in which every message is one chunk."
            )
    source = f"sent by {getattr(plan, '__name__', type(plan).__name__)}, {done!r}"
    return player_of_run(done.results, done.timeline, source, latency_s, bandwidth_Bps)


def _watched(all_reduce: Callable[..., Any]) -> Watched:
    """Run in a rank; return of each message (the tensor then, the peer, what was sent), and the tensor at the end."""
    import torch
    import torch.distributed as dist

    tensor = torch.tensor(tagged(dist.get_rank(), dist.get_world_size()), dtype=torch.float64)
    group: Any = dist.group.WORLD
    plain, sent = group.send, []

    def send(tensors: list[torch.Tensor], peer: int, *rest: Any) -> Any:
        sent.append((tensor.tolist(), peer, tensors[0].reshape(-1).tolist()))
        return plain(tensors, peer, *rest)

    group.send = send  # of this group alone, for the time of this call
    try:
        all_reduce(tensor)
    finally:
        del group.send
    return sent, tensor.tolist()
