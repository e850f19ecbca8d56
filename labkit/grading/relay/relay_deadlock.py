"""A deadlock on the relay, in words: for each rank what it waits for, and from whom."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.grading.relay.records import ANY_SOURCE, Deadlock, RankState


def describe_deadlock(ranks: Sequence[RankState]) -> Deadlock:
    """Return who waits for whom, where no rank can go on."""
    lines = []
    waiting = []
    for rank, state in enumerate(ranks):
        if state.waits:
            waiting.append(rank)
            lines.append(f"rank {rank} waits " + ", and ".join(_wait_words(state, n) for n in sorted(state.waits)))
        elif state.gone:
            lines.append(f"rank {rank} {state.gone}")
        else:
            lines.append(f"rank {rank} has finished")
    kinds = {
        ranks[rank].posts[number].kind if number in ranks[rank].posts else "collective"
        for rank in waiting
        for number in ranks[rank].waits
    }
    if len(waiting) == len(ranks) > 1 and kinds == {"send"}:
        text = "Deadlock: every rank waits for its send to be received, and no rank has got as far as receiving."
    elif len(waiting) == len(ranks) > 1 and kinds == {"recv"}:
        text = "Deadlock: every rank waits to receive, and nothing has been sent that would answer it."
    elif len(waiting) == len(ranks) > 1:
        text = "Deadlock: every rank waits for another one."
    else:
        names = _listed([f"rank {rank}" for rank in waiting])
        rest = _listed([f"rank {rank}" for rank in range(len(ranks)) if rank not in waiting])
        verb = "waits" if len(waiting) == 1 else "wait"
        text = f"Deadlock: {names} still {verb} for what {rest or 'nobody'} will never do."
    return Deadlock(waiting[0], text, tuple(lines))


def _wait_words(state: RankState, number: int) -> str:
    where = f" ({state.waits[number]})" if state.waits[number] else ""
    if number in state.posts:
        post = state.posts[number]
        size = f"{post.size} byte{'' if post.size == 1 else 's'}"
        if post.kind == "send":
            return f"for rank {post.peer} to receive {size}{where}"
        source = "any rank" if post.peer == ANY_SOURCE else f"rank {post.peer}"
        return f"for {size} from {source}{where}"
    collective, part = state.parts[number]
    missing = [member for member in collective.members if member not in collective.parts]
    late = missing or [m for m in collective.members if collective.parts[m].contribution is None]
    return f"in {part.name} for {_listed([f'rank {m}' for m in late]) or 'the others'}{where}"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""
