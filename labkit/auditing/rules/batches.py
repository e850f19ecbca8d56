"""Whether ranks that share a batch read one, and ranks that share an epoch read it once, each with noise of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Batch, Draw, Epoch
from labkit.auditing.finding import Finding
from labkit.auditing.origins import origin
from labkit.auditing.roles import data_parallel, first_steps, replicas, together
from labkit.auditing.seen import Seen
from labkit.auditing.telling import listed

APART = rule(
    "batches-differ",
    "ranks that work on one batch together read the same one",
    seen="the samples and the places drawn by ranks that exchange activations, batch by batch",
    why="A stage gets labels of other inputs, or a rank attends to another text: shapes match and nothing raises.",
    todo="Give the ranks of one model one seed for what they read, or let one rank read and send.",
    lesson="12",
    sources="deepspeedai/DeepSpeed#5729, axolotl-ai-cloud/axolotl#3920",
)
SHUFFLED_APART = rule(
    "shuffled-apart",
    "ranks that share an epoch's samples shuffle them alike",
    seen="the permutations that ranks draw, and a digest of each sample that a model is called with",
    why="Some samples are read by several ranks in an epoch, and others by none.",
    todo="Shuffle with one seed on all ranks, then take each rank's share.",
    lesson="01",
    sources="karpathy/llm.c#792",
)
NOISE_ALIKE = rule(
    "noise-alike",
    "data-parallel ranks draw noise of their own for their samples",
    seen="what numpy, random and torch draw on each rank while a loader makes samples",
    why="Augmentation is as many times less random: sample i of each rank's batch is changed alike.",
    todo="Add the rank to the seed of numpy, random and torch before the first batch.",
    lesson="05",
    sources="huggingface/pytorch-image-models#1519",
)
COUNTED_TWICE = rule(
    "evaluated-twice",
    "a sum over an evaluation counts each sample once",
    seen="samples that samplers hand out twice while no gradient is kept, and sums over ranks after",
    why="DistributedSampler repeats samples until all ranks have equally many: the repeated ones count twice.",
    todo="Read range(rank, len(data), world_size), or drop the repeated samples before counting.",
    lesson="05",
    sources="pytorch/pytorch#25162",
)
TAIL = rule(
    "tail-never-read",
    "what drop_last leaves out is another tail in each epoch",
    seen="the samples that whole epochs of a loader without shuffling hand out, all ranks taken together",
    why="The same samples are left out in every epoch: the model never sees them.",
    todo="Shuffle, and call set_epoch(epoch), or read the last batch as it is.",
    lesson="01",
)
_FEWEST = 8


def look(seen: Seen) -> Iterator[Finding]:
    """Yield what is wrong with the batches of ranks that belong together."""
    groups = data_parallel(seen)
    for found in (
        next(_apart(seen), None),
        _shuffled_apart(seen, groups),
        _noise(seen, groups),
        _twice(seen),
        _tail(seen, groups),
    ):
        if found is not None:
            yield found


def of_one_batch(seen: Seen) -> list[tuple[int, ...]]:
    """Return groups of ranks that work on one batch: by collectives on activations, or as stages."""
    alike = [set(ranks) for step in first_steps(seen) for ranks in replicas(step)]
    stages = {
        tuple(sorted(pair))
        for pair in seen.messages
        if pair[::-1] in seen.messages and not any(set(pair) <= one for one in alike)
    }
    return sorted(together(seen) | stages)


def _apart(seen: Seen) -> Iterator[Finding]:
    groups = of_one_batch(seen)
    batches: dict[tuple[int, int, int], dict[int, Batch]] = defaultdict(dict)
    counts: dict[tuple[int, int, int], int] = defaultdict(int)
    for batch in seen.batches:
        number = counts[batch.rank, batch.loader, batch.epoch]
        counts[batch.rank, batch.loader, batch.epoch] += 1
        batches[batch.loader, batch.epoch, number][batch.rank] = batch
    draws: dict[tuple[str, str, int], dict[int, Draw]] = defaultdict(dict)
    for draw in seen.draws:
        if draw.own and draw.whole and not draw.loading:
            draws[draw.source, draw.name, draw.number][draw.rank] = draw
    for ranks in groups:
        for loader, some in ((key[0], some) for key, some in batches.items()):
            mine = [some[rank] for rank in ranks if rank in some]
            sizes = {one.samples for one in seen.epochs if one.loader == loader and one.rank in ranks}
            other = next((one for one in mine if one.indices != mine[0].indices), None)
            if other is not None and len(sizes) == 1 and len(mine) == len(ranks):
                yield _told_loader(seen, mine[0], other)
        for drawn in draws.values():
            of = [drawn[rank] for rank in ranks if rank in drawn]
            different = next((one for one in of if one.result != of[0].result), None)
            if different is not None and len(of) == len(ranks) and different.numel == of[0].numel:
                yield _told_draw(of[0], different)


def _told_loader(seen: Seen, one: Batch, other: Batch) -> Finding:
    epoch = next(each for each in seen.epochs if (each.rank, each.loader) == (other.rank, other.loader))
    text = (
        f"Ranks {one.rank} and {other.rank} work on one batch together in step {one.step}, and read samples "
        f"{listed(one.indices)} and {listed(other.indices)}."
    )
    todo = "Give both loaders a generator with one seed, or let one rank read and send."
    source = epoch.sampler_made or epoch.made or epoch.source
    source = origin(source, "DataLoader", "generator") if epoch.made else source
    evidence = {"samples": {str(each.rank): list(each.indices) for each in (one, other)}}
    return Finding(APART, "wrong", text, todo, other.rank, other.step, source, "", evidence)


def _told_draw(one: Draw, other: Draw) -> Finding:
    text = (
        f"Ranks {one.rank} and {other.rank} work on one batch together, and draw different places with {one.name}() "
        f"in step {one.step}."
    )
    todo = "Seed the generator that draws what is read alike on the ranks of one model."
    source = origin(other.source, other.name, "generator")
    return Finding(APART, "wrong", text, todo, other.rank, other.step, source, "", {"numbers": one.numel})


def _shuffled_apart(seen: Seen, groups: list[tuple[int, ...]]) -> Finding | None:
    drawn: dict[tuple[str, int], dict[int, Draw]] = defaultdict(dict)
    for draw in seen.draws:
        if draw.name == "randperm" and draw.own and draw.numel >= _FEWEST:
            drawn[draw.source, draw.number][draw.rank] = draw
    for ranks in groups:
        for some in drawn.values():
            mine = [some[rank] for rank in ranks if rank in some]
            other = next((one for one in mine if one.result != mine[0].result), None)
            if other is None or len({one.numel for one in mine}) > 1 or len(mine) < len(ranks):
                continue
            twice = _read_by_two(seen, ranks, other.numel)
            if not twice:
                continue
            text = (
                f"Ranks {mine[0].rank} and {other.rank} shuffle {other.numel} samples each in its own way and take "
                f"their shares: {twice} samples are read by more than one rank before any is read again."
            )
            todo = "Seed the shuffle alike on all ranks."
            source = origin(other.source, other.name, "generator")
            evidence = {"ranks": list(ranks), "samples": other.numel, "read_by_two": twice}
            return Finding(SHUFFLED_APART, "wrong", text, todo, other.rank, other.step, source, "", evidence)
    return None


def _read_by_two(seen: Seen, ranks: tuple[int, ...], whole: int) -> int:
    """Return how many samples several ranks read before any of them reads a sample of its own again.

    It is 0 where a rank reads as many as there are: it takes no share, but all of them in an order of its own.
    """
    read: dict[int, list[bytes]] = {rank: [] for rank in ranks}
    over: set[int] = set()
    for one in seen.inputs:
        if one.rank in read and one.rank not in over:
            if set(one.rows) & set(read[one.rank]) or len(set(one.rows)) < len(one.rows):
                over.add(one.rank)
            else:
                read[one.rank] += one.rows
    if any(len(rows) >= whole for rows in read.values()):
        return 0
    counts: dict[bytes, int] = defaultdict(int)
    for rows in read.values():
        for row in rows:
            counts[row] += 1
    return sum(count > 1 for count in counts.values())


def _noise(seen: Seen, groups: list[tuple[int, ...]]) -> Finding | None:
    by_rank: dict[int, list[Draw]] = defaultdict(list)
    for draw in seen.draws:
        if draw.loading:
            by_rank[draw.rank].append(draw)
    for ranks in groups:
        for rank in ranks[1:]:
            pairs = list(zip(by_rank[ranks[0]], by_rank[rank], strict=False))
            if sum(one.numel for one, _ in pairs) < _FEWEST or any(one.result != two.result for one, two in pairs):
                continue
            draw = pairs[0][1]
            text = (
                f"Ranks {ranks[0]} and {rank} draw the same {sum(one.numel for one, _ in pairs)} numbers with "
                f"{draw.name}() while their loaders make samples: sample i is changed alike on both."
            )
            todo = "Seed with seed + rank (numpy, random and torch each have a state of their own)."
            evidence = {"ranks": [ranks[0], rank], "draws": len(pairs)}
            return Finding(NOISE_ALIKE, "wrong", text, todo, rank, draw.step, draw.source, "", evidence)
    return None


def _twice(seen: Seen) -> Finding | None:
    by_place: dict[tuple[int, int], dict[int, Epoch]] = defaultdict(dict)
    for epoch in seen.epochs:
        if epoch.order and not epoch.trains:
            by_place[epoch.loader, epoch.number][epoch.rank] = epoch
    for (loader, _), epochs in by_place.items():
        indices = [index for one in epochs.values() for index in one.order]
        repeated = len(indices) - len(set(indices))
        first = epochs[min(epochs)]
        sums = [
            call for call in seen.calls
            if call.op and call.rank == first.rank and call.step >= first.step and call.before_backward
        ]  # fmt: skip
        if not repeated or len(epochs) < 2 or not sums:
            continue
        text = (
            f"The samplers of {len(epochs)} ranks hand out {len(indices)} samples of {first.samples} to evaluate on: "
            f"{repeated} are repeated so that all ranks have equally many, and the sum over ranks counts them twice."
        )
        todo = f"Evaluate on range(rank, {first.samples}, {len(epochs)}), with no padding."
        evidence = {"handed_out": len(indices), "samples": first.samples, "loader": loader}
        source = first.sampler_made or first.made or first.source
        return Finding(COUNTED_TWICE, "wrong", text, todo, first.rank, first.step - 1, source, "", evidence)
    return None


def _tail(seen: Seen, groups: list[tuple[int, ...]]) -> Finding | None:
    read: dict[tuple[int, int], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for batch in seen.batches:
        read[batch.loader, batch.epoch][batch.rank] |= set(batch.indices)
    whole: dict[int, list[tuple[Epoch, set[int]]]] = defaultdict(list)
    for (loader, number), by_rank in sorted(read.items()):
        epoch = next((e for e in seen.epochs if (e.loader, e.number, e.rank) == (loader, number, min(by_rank))), None)
        later = any(e.loader == loader and e.number == number + 1 for e in seen.epochs)
        group = next((ranks for ranks in groups if set(by_rank) <= set(ranks)), None)
        if epoch is None or group is None or len(by_rank) < len(group) or not epoch.drops or epoch.shuffles:
            continue
        missing = set(range(epoch.samples)) - set().union(*by_rank.values())
        if later or whole[loader]:
            whole[loader].append((epoch, missing))
    for epochs in whole.values():
        always = set.intersection(*(missing for _, missing in epochs)) if len(epochs) > 1 else set()
        if always:
            epoch = epochs[-1][0]
            text = (
                f"{len(always)} of {epoch.samples} samples are read in none of {len(epochs)} epochs, from sample "
                f"{min(always)} on: nothing is shuffled, and drop_last leaves out the same ones each time."
            )
            todo = "Shuffle with set_epoch(epoch), or leave drop_last out."
            evidence = {"never_read": len(always), "samples": epoch.samples, "first": min(always)}
            source = epoch.made or epoch.sampler_made or epoch.source
            return Finding(TAIL, "wrong", text, todo, epoch.rank, epoch.step, source, "", evidence)
    return None
