"""Whether ranks read different samples, all of them, in another order each epoch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Batch, Epoch
from labkit.auditing.finding import Finding
from labkit.auditing.roles import data_parallel
from labkit.auditing.seen import Seen
from labkit.auditing.telling import listed

SAME_SAMPLES = rule(
    "same-samples",
    "data-parallel ranks read different samples",
    seen="a digest of each sample a DataLoader hands out and of what the model is called with, rank by rank",
    why="The ranks compute one gradient several times: a step is worth one rank's batch and costs all of them.",
    todo="Give the loader a DistributedSampler, with the rank and the number of the data-parallel group.",
    lesson="01",
    sources="PatrickHua/SimSiam#16, openspeech-team/openspeech#149",
)
NOT_SHUFFLED = rule(
    "epochs-alike",
    "a shuffling sampler is told each epoch",
    seen="the order in which each epoch's sampler hands out samples",
    why="Every epoch has the same batches in the same order.",
    todo="Call sampler.set_epoch(epoch) before each epoch.",
    lesson="01",
    sources="pytorch/pytorch#31771, lucidrains/DALLE-pytorch#230",
)
NEVER_READ = rule(
    "samples-never-read",
    "every sample is some rank's",
    seen="the samples that the ranks' samplers hand out in an epoch, taken together",
    why="The model never sees them, and nothing says so.",
    todo="Let all ranks' samplers share one seed, one number of replicas and a rank each.",
    lesson="01",
)


def look(seen: Seen) -> Iterator[Finding]:
    """Yield what is wrong with who reads what."""
    groups = data_parallel(seen)
    same = next((one for one in (*_same(seen, groups), *_same_inputs(seen, groups))), None)
    if same is not None:
        yield same
    yield from list(_alike(seen))[:1]
    yield from list(_never(seen, groups))[:1]


def _same(seen: Seen, groups: list[tuple[int, ...]]) -> Iterator[Finding]:
    by_place: dict[tuple[int, int, int], dict[int, Batch]] = defaultdict(dict)
    for batch in seen.batches:
        by_place[batch.loader, batch.epoch, batch.step].setdefault(batch.rank, batch)
    for (loader, _, step), batches in sorted(by_place.items()):
        for ranks in groups:
            mine = [batches[rank] for rank in ranks if rank in batches]
            for place, one in enumerate(mine):
                for other in mine[:place]:
                    common = set(zip(one.indices, one.rows, strict=False)) & set(
                        zip(other.indices, other.rows, strict=False)
                    )
                    if common and len(common) == len(set(one.indices)):
                        yield _told_same(seen, loader, step, ranks, one, other, len(common))


def _told_same(
    seen: Seen, loader: int, step: int, ranks: tuple[int, ...], one: Batch, other: Batch, common: int
) -> Finding:  # fmt: skip
    epoch = next((each for each in seen.epochs if (each.rank, each.loader) == (one.rank, loader)), None)
    sampler = "" if epoch is None else f" ({_sampler(epoch)})"
    text = (
        f"Ranks {other.rank} and {one.rank} read the same {common} samples in step {step}{sampler}: indices "
        f"{listed(one.indices)}."
    )
    todo = f"Use DistributedSampler(dataset, num_replicas={len(ranks)}, rank=...), and give its rank to each rank."
    evidence = {"ranks": [other.rank, one.rank], "samples": common, "indices": list(one.indices)}
    source = one.source if epoch is None else epoch.sampler_made or epoch.made or epoch.source
    return Finding(SAME_SAMPLES, "wrong", text, todo, one.rank, step, source, "", evidence)


def _sampler(epoch: Epoch) -> str:
    if epoch.replicas is None:
        return f"{epoch.sampler} over all {epoch.samples} samples, on every rank"
    return f"{epoch.sampler} with rank={epoch.place} of num_replicas={epoch.replicas}"


def _stream(seen: Seen, ranks: list[int]) -> str:
    """Return the line at which a stream that these ranks read begins to hand out samples, "" for no stream."""
    return next((epoch.reads for epoch in seen.epochs if epoch.rank in ranks and epoch.reads), "")


def _same_inputs(seen: Seen, groups: list[tuple[int, ...]]) -> Iterator[Finding]:
    by_step: dict[int, dict[int, tuple[bytes, str, int]]] = defaultdict(dict)
    for one in seen.inputs:
        by_step[one.step].setdefault(one.rank, (one.digest, one.source, one.numel))
    for step, inputs in sorted(by_step.items()):
        for ranks in groups:
            first: dict[bytes, int] = {}
            for rank in ranks:
                digest, source, numel = inputs.get(rank, (b"", "", 0))
                if digest and numel > 1 and digest in first:
                    text = (
                        f"Ranks {first[digest]} and {rank} call the model with the same {numel} numbers in step {step}."
                    )
                    todo = "Give each rank its own part of the batch."
                    evidence = {"ranks": [first[digest], rank], "elements": numel}
                    source = _stream(seen, [first[digest], rank]) or source
                    yield Finding(SAME_SAMPLES, "wrong", text, todo, rank, step, source, "", evidence)
                first.setdefault(digest, rank)


def _alike(seen: Seen) -> Iterator[Finding]:
    last: dict[tuple[int, int], Epoch] = {}
    for epoch in seen.epochs:
        before = last.get((epoch.rank, epoch.loader))
        last[epoch.rank, epoch.loader] = epoch
        if before is None or not epoch.shuffles or not epoch.order or epoch.step == before.step:
            continue
        if epoch.order == before.order and epoch.drawn > 1:
            text = (
                f"Rank {epoch.rank} reads epoch {epoch.number} in the order of epoch {before.number}: the sampler "
                f"shuffles {epoch.drawn} samples, and its epoch is {epoch.epoch} in both."
            )
            todo = "Call sampler.set_epoch(epoch) at the start of each epoch."
            evidence = {"epoch": epoch.number, "sampler_epoch": epoch.epoch, "first": list(epoch.order[:8])}
            yield Finding(NOT_SHUFFLED, "wrong", text, todo, epoch.rank, epoch.step, epoch.source, "", evidence)


def _never(seen: Seen, groups: list[tuple[int, ...]]) -> Iterator[Finding]:
    by_place: dict[tuple[int, int], dict[int, Epoch]] = defaultdict(dict)
    for epoch in seen.epochs:
        if epoch.order:
            by_place[epoch.loader, epoch.number][epoch.rank] = epoch
    for (_, number), epochs in sorted(by_place.items()):
        for ranks in groups:
            mine = [epochs[rank] for rank in ranks if rank in epochs]
            if len(mine) < len(ranks) or len({one.samples for one in mine}) > 1:
                continue
            read = {index for one in mine for index in one.order}
            samples = mine[0].samples
            missing = samples - len(read)
            if missing <= 0 or missing < mine[0].replicas if mine[0].replicas else missing <= 0:
                continue  # what drop_last drops is less than one a rank
            seeds = sorted({one.seed for one in mine if one.seed is not None})
            why = f"their samplers have seeds {listed(seeds)}" if len(seeds) > 1 else _who(mine)
            text = f"{missing} of {samples} samples are read by no rank in epoch {number}: {why}."
            evidence = {
                "missing": missing,
                "samples": samples,
                "seeds": seeds,
                "first": min(set(range(samples)) - read),
            }
            todo = "Give all samplers one seed and the same num_replicas, and each rank its own rank."
            source = mine[-1].sampler_made or mine[-1].made or mine[-1].source
            yield Finding(NEVER_READ, "wrong", text, todo, mine[-1].rank, mine[-1].step, source, "", evidence)


def _who(epochs: list[Epoch]) -> str:
    places = [one.place for one in epochs]
    return f"{len(epochs)} samplers take themselves for ranks {listed(places)} of {epochs[0].replicas}"
