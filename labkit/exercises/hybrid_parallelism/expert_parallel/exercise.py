"""A layer of experts on the ranks of one axis of a mesh: tokens travel to their expert and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor

from labkit.checks.blame import HANGS, bearing
from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.declared import Mistake, Result, declared, tensor_result
from labkit.checks.failures import sizes_differ
from labkit.checks.finding import Finding
from labkit.checks.groups import group_of
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.checks.structure import NOTHING
from labkit.checks.traffic import lost_messages
from labkit.checks.values import integers, tensor
from labkit.checks.wire import Wire
from labkit.exercises.hybrid_parallelism.expert_parallel.driver import drive
from labkit.exercises.hybrid_parallelism.routing import (
    WIDTH,
    balance,
    capacity,
    expected,
    output,
    routed,
    routed_case,
    taken,
)


def _out(**mistake: Any) -> Callable[[Case, int], Tensor]:
    return partial(output, **mistake)


def _balance(**mistake: Any) -> Callable[[Case, int], float]:
    return partial(balance, **mistake)


def _equal_ranks(case: Case, rank: int) -> float | None:
    """Return the balance loss where each rank is taken for one with as many tokens as this one."""
    ranks, mine = group_of(case, rank), len(tensor(case.inputs[rank], "x"))
    everybody = sum(len(tensor(case.inputs[each], "x")) for each in ranks)
    return balance(case, rank) * (everybody / (mine * len(ranks))) ** 2 if mine else None


def _some_know(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the balance loss is right on some ranks, and 0 or nothing on all others."""
    if isinstance(got, Failure):
        return False
    came = [each["balance"] for each in got]
    right = [isinstance(each, float) and _close(each, balance(case, rank)) for rank, each in enumerate(came)]
    return any(right) and not all(right) and all(ok or not each for ok, each in zip(right, came, strict=True))


def _share_of_taken(case: Case, rank: int) -> float:
    """Return the loss in which f is an expert's share of the tokens that are taken."""
    ranks = group_of(case, rank)
    return balance(case, rank, count="group") * len(routed(case, ranks)) / len(taken(case, rank))


def _mean_of_losses(case: Case, rank: int, *, asleep: bool = False) -> float:
    """Return the mean of the losses of ranks by themselves; `asleep`: a rank without tokens counts as 0."""
    ranks = group_of(case, rank)
    there = [each for each in ranks if routed(case, [each])]
    return sum(balance(case, each, over="rank") for each in there) / len(ranks if asleep else there)


def _without_tokens(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a rank without tokens has called nothing, and others wait."""
    if not bearing(*HANGS)(case, got, wire) if isinstance(got, Failure) else True:
        return False
    callers = {call.rank for call in wire.collectives}
    empty = [rank for rank in range(case.world_size) if not len(tensor(case.inputs[rank], "x"))]
    return bool(callers) and any(rank not in callers for rank in empty)


def _tokens_of(case: Case, rank: int, *, away: bool = False) -> tuple[int, int]:
    """Return how many of a rank's tokens are taken, and how many its experts take; `away`: between ranks alone."""
    ranks, each = group_of(case, rank), len(tensor(case.inputs[rank], "experts"))
    pairs = [(token.rank, ranks[token.expert // each]) for token in taken(case, rank)]
    pairs = [(source, to) for source, to in pairs if not (away and source == to)]
    return sum(source == rank for source, _ in pairs), sum(to == rank for _, to in pairs)


def _too_much(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that tokens went to others than the rank of their expert, or more went than it takes."""
    for rank in range(case.world_size):
        told = 64 * tensor(case.inputs[rank], "router").shape[1]  # what else ranks may tell each other
        calls = [call for call in wire.collectives if call.rank == rank]
        large = [call for call in calls if not call.kind.startswith("all_to_all") and call.bytes > told]
        if large:
            call = large[0]
            text = f"Rank {rank} called dist.{call.kind} with {call.bytes:,} bytes: not a few numbers for each expert."
            yield Finding(_EVERYBODY, text, "dist.all_to_all", call.kind, rank, call.sequence)
        mine, here = _tokens_of(case, rank)
        sent = wire.bytes_sent(rank) + sum(call.bytes for call in calls if call.kind.startswith("all_to_all"))
        most = 2 * max(mine, here) * 8 * (WIDTH + 2) + told  # a call counts for what goes, or comes, if that is more
        if sent > most:
            text = f"Rank {rank} sent {sent:,} bytes; {mine} of its tokens are taken, and its experts take {here}."
            yield Finding(_PADDED, text, f"at most {most:,} bytes", f"{sent:,} bytes", rank)


def _over_capacity(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, came in enumerate(got):
        most = max(integers(came, "computed"), default=0)
        if most > capacity(case):
            text = f"An expert of rank {rank} computed {most} tokens; its capacity is {capacity(case)}."
            yield Finding(_OVER, text, f"at most {capacity(case)}", str(most), rank)


def _splits_differ(case: Case, got: Got, wire: Wire) -> bool:
    words = ("split", "sizes", "size mismatch", "expects", "elements", "shape of the mask")
    if not isinstance(got, Failure):
        return False
    return sizes_differ(got) or (got.kind == "exception" and any(word in got.message for word in words))


def structure(case: Case) -> list[Any]:
    """Return what results look like: the oracle's, and a number for each of a rank's experts."""
    counts = [len(tensor(inputs, "experts")) for inputs in case.inputs]
    return [{**right, "computed": [int] * each} for right, each in zip(expected(case), counts, strict=True)]


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: tokens that are taken elsewhere, and their results."""
    found = {}
    for rank in range(case.world_size):
        size = MOST_PACKED * WIDTH * sum(_tokens_of(case, rank, away=True))
        found[rank] = Bytes(size, size)
    return found


def _close(came: float, wanted: float) -> bool:
    return abs(came - wanted) <= 1e-5 * wanted


_EVERYBODY, _PADDED, _OVER, _SPLITS, _NO_CAPACITY = (
    "tokens to everybody", "more than the tokens", "over capacity", "splits not exchanged", "nobody dropped",
)  # fmt: skip

EXERCISE = declared(
    id="expert_parallel",
    functions=("expert_layer",),
    driver=drive,
    oracle=expected,
    structure=structure,
    least=least,
    looks=(
        lambda case, got, wire: lost_messages(wire),
        tensor_result("out", "the output"),
        Result("balance", "{ranks}: the output is right, the balance loss is not. On rank {rank} it is {got}, not "
               "{wanted}.", same=_close),
        _over_capacity,
        _too_much,
    ),
    mistakes=(
        Mistake("capacity of each rank",
                "You counted each rank's tokens by themselves. Capacity is of all ranks together: first ask how many "
                "tokens the ranks before yours have for each expert.",
                {"out": (_out(count="rank"), _out(count="share"))}),
        Mistake("the later ones taken",
                "Where more tokens come than an expert takes, the first ones are taken: in order of ranks, and on a "
                "rank in order of tokens.", {"out": _out(count="last")}),
        Mistake("the largest gates taken",
                "An expert takes the tokens that ask first, whatever their gate: in order of ranks, and on a rank in "
                "order of tokens.", {"out": (_out(count="gates"), _out(count="own gates"))}),
        Mistake("the last rank first", "Rank 0's tokens are taken first, then rank 1's, and so on: count what the "
                "ranks *before* this one ask for.", {"out": _out(count="ranks")}),
        Mistake("one too many", "With capacity C the tokens in places 0 to C - 1 are taken: place < C.",
                {"out": _out(count="one more")}),
        Mistake("one too few", "With capacity C the tokens in places 0 to C - 1 are taken, C of them.",
                {"out": _out(count="one fewer")}),
        Mistake(_NO_CAPACITY, "An expert takes `capacity` tokens. All that come after those pass it by.",
                {"out": _out(count="all")}),
        Mistake("gate forgotten",
                "An expert's result is weighed by the token's probability of that expert. Without it the router "
                "learns nothing.", {"out": _out(gate=False)}),
        Mistake("gate before the expert",
                "You weighed the token before its expert, which is not linear. The gate weighs the result.",
                {"out": _out(gate="before")}),
        Mistake("weighed by the logit",
                "The gate is the probability, after softmax. You weighed by what softmax was given.",
                {"out": _out(gate="logit")}),
        Mistake("no residual", "The output is x + gate * expert(x), and you left out x.",
                {"out": (_out(taken_pass=False), _out(taken_pass=False, dropped_pass=False))}),
        Mistake("dropped tokens are zero",
                "A token that no expert takes passes: its output is x. You returned zeros for it.",
                {"out": _out(dropped_pass=False)}),
        Mistake("order lost",
                "Results come back sorted by expert. Put each where its token was: out[rows] with the same rows that "
                "picked the tokens.", {"out": (_out(back="sorted"), _out(back="sorted with gates"))}),
        Mistake("inbox misread",
                "What arrives is sorted by rank first, and by expert within each rank. You read it as sorted by "
                "expert.", {"out": _out(dealt="mixed")}),
        Mistake("not sorted",
                "You sent tokens in their own order. Splits cut what you send into one run for each rank, and a rank "
                "reads its runs expert by expert: sort the tokens by expert first.", {"out": _out(dealt="unsorted")}),
        Mistake("dealt like cards",
                "Experts are dealt out in runs: expert e is on rank e // (E/N) of the group, not on e % N.",
                {"out": _out(dealt="cards")}),
        Mistake("balance of its own tokens",
                "f and P are over the tokens of all ranks of the group. You took this rank's alone: add up counts and "
                "probabilities first, then multiply.", {"balance": _balance(over="rank")}),
        Mistake("P of its own tokens",
                "f is over the tokens of all ranks, and P of this rank's alone. Gather the sums of probabilities with "
                "the counts.", {"balance": _balance(chances="rank")}),
        Mistake("balance of the world",
                "f and P are over the tokens of this group. You added up over all ranks of the mesh.",
                {"balance": _balance(over="world")}),
        Mistake("balance after dropping",
                "f is the share of tokens whose largest probability is this expert's, taken or not. You counted those "
                "that were taken: then an expert that is asked too often looks fine.",
                {"balance": (_balance(count="group"), _share_of_taken)}),
        Mistake("mean of means",
                "Ranks have different numbers of tokens. Add up sums and counts, and divide by all tokens once.",
                {"balance": (_balance(means=True), _balance(chances="means"), _equal_ranks)}),
        Mistake("mean of the ranks' losses",
                "You averaged what each rank's own tokens give. f and P are over all tokens of the group: add up "
                "counts and probabilities first, then multiply.",
                {"balance": (_mean_of_losses, partial(_mean_of_losses, asleep=True))}),
        Mistake("P of those that ask",
                "P is an expert's mean probability over all tokens, also over those that ask for another one.",
                {"balance": _balance(chances="asked")}),
        Mistake("balance on one rank",
                "One rank returns the balance loss, others do not. All have gathered the same numbers: it is the same "
                "on every rank.", seen=_some_know),
        Mistake("a rank stays away",
                "A rank without tokens has left, and the others wait for it. It may have experts that others ask: it "
                "takes part in every collective.", seen=_without_tokens),
        Mistake("not times E", "Multiply the sum by the number of experts: then it is 1 where all are asked alike.",
                {"balance": _balance(times=False)}),
        Mistake(_OVER,
                "Tokens were dropped after their expert had computed them. Drop them before they travel."),
        Mistake(_EVERYBODY,
                "A token goes to the rank of its expert, by dist.all_to_all_single or messages. Tell everybody counts "
                "and sums of probabilities only."),
        Mistake(_PADDED,
                "More went than tokens that are taken. Splits may be unequal and 0: send each rank what its experts "
                "take, and nothing to fill up."),
        Mistake(_SPLITS,
                "What you send to each rank is not what you receive from it. Your output splits are what the other "
                "ranks send to you: work them out from everybody's counts, or exchange counts first. On the way back "
                "both splits change places. Both have one entry for each rank of the group: hand the group on.",
                says=HANGS, seen=_splits_differ, certain=True),
        Mistake("a list of unequal tensors",
                "On CPUs dist.all_to_all wants tensors of equal sizes in its lists. dist.all_to_all_single takes "
                "splits that differ.", says=("invalid tensor size",), certain=True),
        Mistake(NOTHING, "Return the output and the balance loss, in this order."),
    ),
    visible=(
        routed_case("2 ranks, 2 experts each, room for all", 1481, [[0, 1]], (6, 6), 2, 12),
        routed_case("2 ranks, 2 experts each, capacity 3", 1482, [[0, 1]], (10, 6), 2, 3),
        routed_case("3 ranks, 1 expert each, capacity 4, a rank without tokens", 1483, [[0, 1, 2]], (5, 0, 8), 1, 4),
        routed_case("a mesh of 2 expert by 2 data ranks, expert first", 1484, [[0, 2], [1, 3]], (6, 5, 7, 4), 2, 3),
    ),
    hints=(
        "What must a rank know before it can say which of its tokens are taken? And what before it can receive tokens? "
        "One small all_gather tells both.",
        "Gather each rank's count for each expert. A token's place is the counts of the ranks before, plus its number "
        "among your own; it is taken if that is below capacity. Sort the taken by expert, send by all_to_all_single "
        "with what each rank takes, compute each expert's rows, send back with both splits exchanged, and add at the "
        "rows where they came from.",
        "before = counts[:place].sum(0); place_of = before[chosen] + one_hot.cumsum(0)[arange, chosen] - 1; rows = "
        "taken.nonzero().flatten(); rows = rows[chosen[rows].argsort(stable=True)]; sent = "
        "counts.cumsum(0).clamp(max=capacity).diff(dim=0, prepend=zeros): (N, E), of which rank r sends sent[r] and "
        "receives sent[:, its experts].",
    ),
)  # fmt: skip
