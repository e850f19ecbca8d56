"""Whether a checkpoint holds what the training needs to go on as if it had not stopped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Save
from labkit.auditing.finding import Finding
from labkit.auditing.seen import Seen
from labkit.auditing.telling import listed, on_ranks

INCOMPLETE = rule(
    "checkpoint-incomplete",
    "a checkpoint that the program reads again holds all that training goes on with",
    seen="what torch.save is given, against the optimizers, schedulers and random numbers of the run",
    why="Training that goes on from it takes other steps than training that was never interrupted.",
    todo="Save the state_dict() of optimizer and scheduler, and torch.get_rng_state(), and load them.",
    lesson="13",
)
ONE_RANK = rule(
    "checkpoint-misses-ranks",
    "a checkpoint holds every rank's part of what is spread over ranks",
    seen="which ranks save, and whether what they hold is the same on all",
    why="What the other ranks hold is lost; a resumed run begins with one rank's part on all.",
    todo="Gather the parts first, let each rank write a file of its own, or use torch.distributed.checkpoint.",
    lesson="13",
)
ONE_FILE = rule(
    "checkpoint-overwritten",
    "ranks that hold different parts write different files",
    seen="the path that each rank saves to",
    why="The last rank to write wins, and its part is all that is left.",
    todo="Put the rank into the file's name, or let one rank gather and write.",
    lesson="13",
)

_RANDOM = "the random number generator's"


def look(seen: Seen) -> Iterator[Finding]:
    """Yield checkpoints that lack something."""
    by_step: dict[tuple[int, str], dict[int, Save]] = defaultdict(dict)
    for save in seen.saves:
        if save.step and "model" in save.parts:
            by_step[save.step, save.source].setdefault(save.rank, save)
    told: set[str] = set()
    for (step, _), saves in sorted(by_step.items()):
        for finding in (*_incomplete(seen, step, saves), *_parts(seen, step, saves)):
            if finding.rule not in told:
                told.add(finding.rule)
                yield finding


def _incomplete(seen: Seen, step: int, saves: dict[int, Save]) -> Iterator[Finding]:
    rank, one = min(saves.items())
    if not seen.loads:
        return
    parts = {part for save in saves.values() for part in save.parts}
    lacks = []
    if one.optimizer_state and "optimizer" not in parts:
        lacks.append("the optimizer's state" + (" (it has none yet)" if "empty optimizer" in parts else ""))
    if one.schedulers and "scheduler" not in parts:
        lacks.append("the learning-rate scheduler's")
    if one.draws and "random" not in parts:
        lacks.append(_RANDOM)
    if lacks:
        text = (
            f"The checkpoint that rank {rank} writes after {step} steps lacks {listed(lacks)}: the program reads it "
            "again, and trains on with them as new."
        )
        todo = "Put them into the checkpoint, and load them before the next step."
        evidence = {"lacks": lacks, "holds": sorted(parts)}
        severity = "suspected" if lacks == [_RANDOM] else "wrong"
        yield Finding(INCOMPLETE, severity, text, todo, rank, step - 1, one.source, "", evidence)


def _parts(seen: Seen, step: int, saves: dict[int, Save]) -> Iterator[Finding]:
    size = seen.world_size
    ranks = sorted(saves)
    apart = sorted({name for save in saves.values() for name in save.local})
    if len(ranks) < size and apart:
        text = (
            f"Only {on_ranks(ranks)} of {size} saves after {step} steps, and saves its own piece of {listed(apart)}: "
            "the other ranks' pieces are in no file."
        )
        todo = "Gather them (full_tensor(), get_model_state_dict), or save with torch.distributed.checkpoint."
        rank = ranks[0]
        yield Finding(ONE_RANK, "wrong", text, todo, rank, step - 1, saves[rank].source, apart[0], {"saved_by": ranks})
    by_path: dict[str, list[int]] = defaultdict(list)
    for rank, save in saves.items():
        if save.path:
            by_path[save.path].append(rank)
    for path, writers in sorted(by_path.items()):
        digests = {saves[rank].digest for rank in writers}
        if len(writers) > 1 and len(digests) > 1:
            text = (
                f"Ranks {listed(writers)} write different checkpoints to {path.rpartition('/')[2]} after {step} steps: "
                "what the last of them writes is what is left."
            )
            rank, todo = writers[-1], "Give each rank a file of its own, or gather on rank 0 and write there alone."
            evidence = {"ranks": writers, "path": path}
            yield Finding(ONE_FILE, "wrong", text, todo, rank, step - 1, saves[rank].source, "", evidence)
