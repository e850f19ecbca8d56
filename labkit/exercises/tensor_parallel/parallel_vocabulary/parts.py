"""What ranks hold of a cut vocabulary, and what they would hold with a mistake."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks import values
from labkit.checks.case import Case, Values
from labkit.checks.declared import Way
from labkit.checks.groups import group_of
from labkit.exercises.tensor_parallel.members import given, part
from labkit.models import IGNORED

EMBED, LOSS = "embed", "cross_entropy"
Rows = Callable[[Tensor, Tensor, slice], Tensor]
"""rows(tokens, a part of the table, its bounds): what a rank puts into the sum."""


def tokens_of(case: Case, rank: int) -> Tensor:
    """Return the tokens, or targets, of a rank."""
    return given(case, rank, "tokens")


def whole(case: Case, rank: int) -> Tensor:
    """Return the whole table, or the whole logits, of a rank's group."""
    dim = 0 if case.inputs[rank]["function"] == EMBED else 1
    return torch.cat([given(case, each, "part") for each in group_of(case, rank)], dim)


def bounds(case: Case, rank: int) -> slice:
    """Return which words are a rank's."""
    return part(values.integer(case.inputs[rank], "vocabulary"), case, rank)


def expected(case: Case) -> list[Values]:
    """Return what each rank gets: what torch computes with the whole table or the whole logits."""
    which, found = values.text(case.inputs[0], "function"), list[Values]()
    for rank in range(case.world_size):
        everything, mine = whole(case, rank).requires_grad_(), bounds(case, rank)
        if which == EMBED:
            out = functional.embedding(tokens_of(case, rank), everything)
        else:
            out = functional.cross_entropy(everything, tokens_of(case, rank), ignore_index=IGNORED)
        torch.autograd.backward(out, given(case, rank, "gradient"))
        assert everything.grad is not None
        gradient = everything.grad[mine] if which == EMBED else everything.grad[:, mine]
        of: Values = {"out": out.detach(), "kept": given(case, rank, "part"), "gradient": gradient}
        found.append({which: of, "tokens": tokens_of(case, rank)})
    return found


def right_gradient(case: Case, rank: int) -> Tensor:
    """Return the gradient that a rank gets."""
    return values.tensor(values.record(expected(case)[rank], values.text(case.inputs[rank], "function")), "gradient")


def times_too_often(case: Case, rank: int) -> Tensor:
    """Return N times the gradient."""
    return len(group_of(case, rank)) * right_gradient(case, rank)


def found_here(case: Case, rank: int) -> Tensor:
    """Return the rows of a rank's own tokens, zeros for the others."""
    tokens, mine = tokens_of(case, rank), bounds(case, rank)
    here = (tokens >= mine.start) & (tokens < mine.stop)
    return torch.mul(whole(case, rank)[tokens], here[..., None])


def summed(rows: Rows) -> Way:
    """Return what the ranks' rows add up to."""

    def way(case: Case, rank: int) -> Tensor:
        of = [
            rows(tokens_of(case, each), given(case, each, "part"), bounds(case, each)) for each in group_of(case, rank)
        ]
        return torch.stack(of).sum(0)

    return way


def clamped(tokens: Tensor, of: Tensor, mine: slice) -> Tensor:
    """Return the row that is nearest to each token."""
    return of[(tokens - mine.start).clamp(0, len(of) - 1)]


def first_row(tokens: Tensor, of: Tensor, mine: slice) -> Tensor:
    """Return the first row for tokens of others."""
    place = tokens - mine.start
    return of[torch.where((place >= 0) & (place < len(of)), place, 0)]


def added_to_it(tokens: Tensor, of: Tensor, mine: slice) -> Tensor:
    """Return the first row for tokens of others, and a one more in each row of its own."""
    here = (tokens >= mine.start) & (tokens < mine.stop)
    return torch.add(first_row(tokens, of, mine), here[..., None])


def not_below(tokens: Tensor, of: Tensor, mine: slice) -> Tensor:
    """Return zeros for later words alone: earlier ones count from the end."""
    place = tokens - mine.start
    return torch.mul(of[place.clamp(-len(of), len(of) - 1)], (place < len(of))[..., None])


def other_ends(tokens: Tensor, of: Tensor, mine: slice, how: str) -> Tensor:
    """Return rows where the part of a rank ends one word later, or begins one word later: see `between`."""
    return torch.mul(clamped(tokens, of, mine), between(tokens - mine.start, len(of), mine.start, how)[..., None])


def between(place: Tensor, size: int, start: int, how: str) -> Tensor:
    """Return which places are taken for a rank's own.

    Args:
        place: Of each token, from the first word of the rank.
        size: How many words it has.
        start: Its first word.
        how: "stop, too" takes the next rank's first word, "not start" leaves its own first word out, "not start but 0"
            does so on all ranks but the first.
    """
    if how == "stop, too":
        return (place >= 0) & (place <= size)
    return (place >= (1 if how == "not start" or start else 0)) & (place < size)


def equal_parts(own_size: bool) -> Way:
    """Return what the rows add up to where all parts are taken to be as long as N divides, or as a rank's own part."""

    def way(case: Case, rank: int) -> Tensor:
        found, ranks = torch.zeros(()), group_of(case, rank)
        for number, each in enumerate(ranks):
            of, tokens = given(case, each, "part"), tokens_of(case, each)
            size = len(of) if own_size else values.integer(case.inputs[each], "vocabulary") // len(ranks)
            place = tokens - number * size
            here = (place >= 0) & (place < size)
            found = found + torch.mul(of[place.clamp(0, len(of) - 1)], here[..., None])
        return found

    return way


def modulo(tokens: Tensor, of: Tensor, mine: slice) -> Tensor:
    """Return rows by the remainder of a token's number."""
    here = (tokens >= mine.start) & (tokens < mine.stop)
    return torch.mul(of[tokens % len(of)], here[..., None])


def unshifted(tokens: Tensor, of: Tensor, mine: slice) -> Tensor:
    """Return rows by a token's number."""
    return torch.mul(of[tokens.clamp_max(len(of) - 1)], (tokens < len(of))[..., None])


def table_of_all(case: Case, rank: int) -> Tensor | None:
    """Return what comes where words are cut, and rows added up, as if all ranks shared one table."""
    members, vocabulary = range(case.world_size), values.integer(case.inputs[0], "vocabulary")
    if len(group_of(case, rank)) == len(members):
        return None
    alone = Case(case.name, case.world_size, tuple({**each, "groups": None} for each in case.inputs))
    parts = [(given(case, each, "part"), part(vocabulary, alone, each)) for each in members]
    rows = [
        torch.mul(clamped(tokens, of, mine), ((tokens >= mine.start) & (tokens < mine.stop))[..., None])
        for tokens, (of, mine) in zip((tokens_of(case, each) for each in members), parts, strict=True)
    ]
    return torch.stack(rows).sum(0)


def rows_of_all(case: Case, rank: int) -> Tensor | None:
    """Return what comes where rows are added up over all ranks."""
    if len(group_of(case, rank)) == case.world_size:
        return None
    return torch.stack([found_here(case, each) for each in range(case.world_size)]).sum(0)


def counts(case: Case, rank: int) -> Tensor:
    """Return which targets count."""
    return tokens_of(case, rank) != IGNORED


def losses(case: Case, rank: int) -> Tensor:
    """Return each target's loss; an ignored one's is that of word 0."""
    return functional.cross_entropy(whole(case, rank), tokens_of(case, rank).clamp_min(0), reduction="none")


def mean(case: Case, rank: int, each: Tensor) -> Tensor:
    """Return the mean over targets that count."""
    return each[counts(case, rank)].mean()


def without_word_0(case: Case, rank: int) -> Tensor:
    """Return the mean loss of targets that are more than 0."""
    return losses(case, rank)[tokens_of(case, rank) > 0].mean()


def logits_of_targets(case: Case, rank: int) -> Tensor:
    """Return the target's logit of each."""
    return whole(case, rank).gather(1, tokens_of(case, rank).clamp_min(0)[:, None])[:, 0]


def without_ignored_logits(case: Case, rank: int) -> Tensor:
    """Return losses in which an ignored target's logit is 0."""
    return whole(case, rank).logsumexp(1) - logits_of_targets(case, rank) * counts(case, rank)


def largest_for_ignored(case: Case, rank: int) -> Tensor:
    """Return the mean of all where an ignored target's logit is the largest."""
    everything = whole(case, rank)
    return torch.where(counts(case, rank), losses(case, rank), everything.logsumexp(1) - everything.amax(1)).mean()


def own_softmax(case: Case, rank: int) -> Tensor:
    """Return the loss with the exponentials of a rank's own words."""
    return mean(case, rank, given(case, rank, "part").logsumexp(1) - logits_of_targets(case, rank))


def _largest(case: Case, rank: int) -> Tensor:
    return whole(case, rank).amax(1)


def _place(case: Case, rank: int) -> tuple[Tensor, Tensor]:
    """Return where among a rank's words each target is, and whether it is there at all."""
    mine = bounds(case, rank)
    place = tokens_of(case, rank) - mine.start
    return place, (place >= 0) & (place < mine.stop - mine.start)


def _right(case: Case, rank: int, largest: Tensor, place: Tensor, here: Tensor) -> Tensor:
    """Return what a rank puts into the sum of targets' logits, from these places, where `here` says so."""
    of = given(case, rank, "part")
    logits = of.gather(1, place.clamp(0, of.shape[1] - 1)[:, None])[:, 0] - largest
    return torch.where(here, logits, torch.zeros(()))


def maxima_of_their_own(case: Case, rank: int) -> Tensor:
    """Return the loss where each rank subtracts the largest of its own logits."""
    total, right = torch.zeros(()), torch.zeros(())
    for each in group_of(case, rank):
        of = given(case, each, "part")
        total = total + (of - of.amax(1, keepdim=True)).exp().sum(1)
        right = right + _right(case, each, of.amax(1), *_place(case, each))
    return mean(case, rank, total.log() - right)


def half_masked(case: Case, rank: int, how: str) -> Tensor:
    """Return the loss where ranks add a logit for targets of others, too.

    Args:
        case: What is asked.
        rank: Whose.
        how: "clamped" takes the nearest word's, "first" the first one's, "below" the first one's of earlier words only.
            What else there may be stands in `between`.
    """
    largest, right = _largest(case, rank), torch.zeros(())
    for each in group_of(case, rank):
        place, here = _place(case, each)
        mine = bounds(case, each)
        size = mine.stop - mine.start
        if how in ("clamped", "first", "below"):
            taken = place if how == "clamped" else torch.where(here, place, 0)
            added = place < size if how == "below" else torch.ones_like(here)
        else:
            taken, added = place, between(place, size, mine.start, how)
        right = right + _right(case, each, largest, taken, added)
    return mean(case, rank, whole(case, rank).logsumexp(1) - largest - right)


def own_targets(case: Case, rank: int) -> Tensor:
    """Return the loss with the logits of those targets only that are a rank's own."""
    largest = _largest(case, rank)
    return mean(case, rank, whole(case, rank).logsumexp(1) - largest - _right(case, rank, largest, *_place(case, rank)))


def _alone(case: Case, rank: int, own_largest: bool) -> Tensor:
    of = given(case, rank, "part")
    largest = of.amax(1) if own_largest else _largest(case, rank)
    return mean(case, rank, of.logsumexp(1) - largest - _right(case, rank, largest, *_place(case, rank)))


def nothing_summed(own_largest: bool) -> Way:
    """Return the loss of a rank's own sum and own targets."""
    return lambda case, rank: _alone(case, rank, own_largest)


def local_losses(own_largest: bool, divided: bool) -> Way:
    """Return the sum, or the mean, of such losses."""

    def way(case: Case, rank: int) -> Tensor:
        each = torch.stack([_alone(case, other, own_largest) for other in group_of(case, rank)])
        return each.mean() if divided else each.sum()

    return way


def maximum_subtracted(times: Callable[[int], int]) -> Way:
    """Return the loss where the largest is subtracted from the target's logit so many times, of N ranks."""

    def way(case: Case, rank: int) -> Tensor:
        more = (times(len(group_of(case, rank))) - 1) * _largest(case, rank)
        return mean(case, rank, losses(case, rank) + more)

    return way


def logit_added(times: int) -> Way:
    """Return the loss where the target's logit is added, the largest subtracted from it once or never."""

    def way(case: Case, rank: int) -> Tensor:
        return mean(case, rank, losses(case, rank) + 2 * (logits_of_targets(case, rank) - times * _largest(case, rank)))

    return way


def of_other_signs(case: Case, rank: int) -> Tensor:
    """Return the loss of minus the logits."""
    targets = tokens_of(case, rank).clamp_min(0)
    return mean(case, rank, functional.cross_entropy(-whole(case, rank), targets, reduction="none"))


def through_the_maximum(case: Case, rank: int) -> Tensor:
    """Return the gradient where the one of the subtracted maximum reaches the largest logit of each rank."""
    of, count = given(case, rank, "part"), counts(case, rank)
    share = (of.logsumexp(1) - whole(case, rank).logsumexp(1)).exp()
    more = (_place(case, rank)[1].double() - share) * count / count.sum() * given(case, rank, "gradient")
    return right_gradient(case, rank) + functional.one_hot(of.argmax(1), of.shape[1]) * more[:, None]


def gradient_of_other_words(case: Case, rank: int) -> Tensor | None:
    """Return what the gradients of all ranks' logits add up to, word by word of each."""
    every = [right_gradient(case, each) for each in group_of(case, rank)]
    return torch.stack(every).sum(0) if len({each.shape for each in every}) == 1 else None


def means_of_parts(divided: bool) -> Way:
    """Return the sum, or the mean, of each rank's mean loss of its own targets; one that has none adds 0."""

    def way(case: Case, rank: int) -> Tensor:
        ranks = group_of(case, rank)
        every = [losses(case, rank)[_place(case, each)[1]] for each in ranks]
        added = torch.stack([each.sum() / max(1, len(each)) for each in every]).sum()
        return added / len(ranks) if divided else added

    return way


def of_its_own_targets(case: Case, rank: int) -> Tensor | None:
    """Return the gradient where each rank's loss is that of its own targets: no other token reaches its logits."""
    if case.inputs[rank]["function"] == EMBED:
        return None
    return torch.mul(right_gradient(case, rank), _place(case, rank)[1][:, None])


def half_gradient(case: Case, rank: int, softmax: bool) -> Tensor | None:
    """Return the gradient of the logarithm of the sum alone, or of the targets' logits alone."""
    if case.inputs[rank]["function"] == EMBED:
        return None
    place, here = _place(case, rank)
    width = given(case, rank, "part").shape[1]
    targets = torch.mul(functional.one_hot(place.clamp(0, width - 1), width), here[:, None])
    scale = counts(case, rank).double() / counts(case, rank).sum() * given(case, rank, "gradient")
    minus = torch.mul(targets, scale[:, None])
    return right_gradient(case, rank) + minus if softmax else -minus


def incoming_ignored(case: Case, rank: int) -> Tensor | None:
    """Return the gradient of the loss itself, not multiplied by what backward was given."""
    if case.inputs[rank]["function"] == EMBED:
        return None
    return right_gradient(case, rank) / given(case, rank, "gradient")


def first_word_untrained(case: Case, rank: int) -> Tensor:
    """Return the gradient of rows where the first one of a rank gets none."""
    found = right_gradient(case, rank).clone()
    found[0] = 0
    return found


def over_own_count(case: Case, rank: int) -> Tensor:
    """Return the sum of all losses over the number of a rank's own targets."""
    return losses(case, rank)[counts(case, rank)].sum() / max(1, int(_place(case, rank)[1].sum()))


def own_targets_count(case: Case, rank: int) -> Tensor:
    """Return the mean loss of a rank's own targets."""
    return losses(case, rank)[counts(case, rank) & _place(case, rank)[1]].mean()
