"""A cut vocabulary: an embedding, and a cross-entropy without gathering logits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from labkit.checks import draws, values
from labkit.checks.case import Case, Failure, Value, Values
from labkit.checks.declared import Mistake, declared, tensor_result
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.groups import group_of
from labkit.checks.hanging import stays_away
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import NOT_A_NUMBER, NOTHING
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import NO_GRADIENT, given, part
from labkit.exercises.tensor_parallel.parallel_vocabulary.driver import drive
from labkit.exercises.tensor_parallel.parallel_vocabulary.parts import (
    EMBED,
    LOSS,
    added_to_it,
    clamped,
    counts,
    equal_parts,
    expected,
    first_row,
    first_word_untrained,
    found_here,
    gradient_of_other_words,
    half_gradient,
    half_masked,
    incoming_ignored,
    largest_for_ignored,
    local_losses,
    logit_added,
    losses,
    maxima_of_their_own,
    maximum_subtracted,
    means_of_parts,
    modulo,
    not_below,
    nothing_summed,
    of_its_own_targets,
    of_other_signs,
    other_ends,
    over_own_count,
    own_softmax,
    own_targets,
    own_targets_count,
    rows_of_all,
    summed,
    table_of_all,
    through_the_maximum,
    times_too_often,
    tokens_of,
    unshifted,
    whole,
    without_ignored_logits,
    without_word_0,
)
from labkit.models import IGNORED

MOST_NUMBERS, NUMBER_BYTES, WIDTH = 4, 8, 6
LARGEST_EXPONENT = 700
"""exp() of more is inf in float64."""


def vocabulary_case(
    name: str, seed: int, world_size: int, which: str, vocabulary: int, *, ignored: int = 0, largest: float = 1.0,
    groups: list[list[int]] | None = None, largest_of_last: float = 0.0,
) -> Case:  # fmt: skip
    """Return a case of parallel_vocabulary.

    Args:
        name: What is special about it.
        seed: Of tokens and numbers.
        world_size: How many ranks.
        which: "embed" or "cross_entropy".
        vocabulary: How many tokens there are.
        ignored: How many of 12 targets do not count.
        largest: How large logits are, about.
        groups: Ranks that share a vocabulary, and work on a batch of their own; None is all.
        largest_of_last: How large the last group's logits are, where that is another size.
    """
    shared: dict[str, Value] = {"groups": [list(each) for each in groups]} if groups else {}
    whole = Case(name, world_size, (shared,) * world_size)
    batches = [
        _drawn_tokens(
            part_of(seed, "batch", n), which, vocabulary, ignored, [part(vocabulary, whole, r) for r in ranks]
        )
        for n, ranks in enumerate(groups or [list(range(world_size))])
    ]
    if groups:  # the last rank of the last group has none of its words there
        batches[-1] = _without_words_from(batches[-1], part(vocabulary, whole, groups[-1][-1]).start)
    gradient = normal(part_of(seed, "gradient"), 3, 4, WIDTH, dtype=torch.float64)
    inputs: list[Values] = []
    for rank in range(world_size):
        mine = part(vocabulary, whole, rank)
        size = mine.stop - mine.start
        shape = (size, WIDTH) if which == EMBED else (12, size)
        of_last = groups is not None and rank in groups[-1]
        scale = largest_of_last if of_last and largest_of_last else largest
        tokens = batches[next(n for n, ranks in enumerate(groups or [range(world_size)]) if rank in ranks)]
        more: dict[str, Value] = {"function": which, "tokens": tokens, "vocabulary": vocabulary}
        more["part"] = normal(part_of(seed, "rank", rank), *shape, scale=scale, dtype=torch.float64)
        more["gradient"] = gradient if which == EMBED else torch.tensor(2.0, dtype=torch.float64)
        inputs.append({**whole.inputs[rank], **more})
    return Case(name, world_size, tuple(inputs))


def _drawn_tokens(seed: int, which: str, vocabulary: int, ignored: int, parts: Sequence[slice]) -> Tensor:
    """Return 12 tokens, or targets of which some are ignored; the first and last word of every rank are among them."""
    generator = draws.generator(seed)
    tokens = torch.randint(1, vocabulary, (3, 4), generator=generator)
    order = torch.randperm(12, generator=generator)
    ends = torch.tensor([end for mine in parts for end in (mine.start, mine.stop - 1)])
    tokens.view(-1)[order[: len(ends)]] = ends
    if which == EMBED:
        return tokens
    tokens.flatten()[order[12 - ignored :]] = IGNORED
    return tokens.flatten()


def _without_words_from(tokens: Tensor, start: int) -> Tensor:
    return torch.where(tokens < start, tokens, tokens % start)


def _overflows(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that a loss is inf or nan."""
    for rank, came in enumerate(got):
        loss = values.tensor(values.record(came, LOSS), "out") if LOSS in came else torch.zeros(())
        if not bool(loss.isfinite().all()):
            right = values.tensor(values.record(expected(case)[rank], LOSS), "out")
            small = float(whole(case, rank).max()) < LARGEST_EXPONENT
            mistake = _VANISH if small or bool((loss < 0).all()) else _OVERFLOW
            if all(float(given(case, each, "part").max()) < LARGEST_EXPONENT for each in range(case.world_size)):
                mistake = _MEETS
            yield Finding(mistake, f"The loss on rank {rank} is {loss.item()}.", f"{right.item():.6g}", rank=rank)


def _too_much(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that more travelled than the result needs."""
    targets = tokens_of(case, 0).numel()
    is_loss = case.inputs[0]["function"] == LOSS
    most = (MOST_NUMBERS if is_loss else WIDTH) * NUMBER_BYTES * targets
    for rank in range(case.world_size):
        moved = sum(call.bytes for call in wire.collectives if call.rank == rank) + wire.bytes_sent(rank)
        if moved > most:
            sent = f"exchanged {moved} bytes for {targets} {'targets' if is_loss else 'tokens'}; {most} are the most"
            what = "loss is" if is_loss else "rows are"
            yield Finding(_GATHERED if is_loss else _TABLE, f"The {what} right, but rank {rank} {sent}.", rank=rank)


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: of each rank a number for every target that counts, or a row for each of its tokens."""
    tokens = values.tensor(case.inputs[0], "tokens")
    return both_ways(
        range(case.world_size), int((tokens != IGNORED).sum()) if case.inputs[0]["function"] == LOSS else WIDTH
    )


_OVERFLOW, _VANISH, _MEETS, _GATHERED, _TABLE, _CHANGED = (
    "exponentials overflow", "exponentials vanish", "-inf in a sum", "logits gathered", "embedding gathered",
    "what was given is changed",
)  # fmt: skip
_OTHER_ENDS = ("stop, too", "not start", "not start but 0")

EXERCISE = declared(
    id="parallel_vocabulary",
    functions=(EMBED, LOSS),
    driver=drive,
    oracle=expected,
    least=least,
    looks=(
        _overflows,
        *(
            result
            for name in (EMBED, LOSS)
            for result in (
                tensor_result(f"{name}.kept", "the part given", _CHANGED),
                tensor_result(f"{name}.out", "the result"),
                tensor_result(f"{name}.gradient", "the gradient of what this rank has"),
            )
        ),
        tensor_result("tokens", "what was given as tokens or targets", _CHANGED),
        _too_much,
    ),
    mistakes=(
        Mistake("group ignored",
                "Words are shared out, or rows added up, as if all ranks had one table. Hand the group on.",
                {f"{EMBED}.out": (table_of_all, rows_of_all)}),
        Mistake("not summed",
                "Tokens of other ranks are missing: `leave` what you found, zeros where a token is not yours.",
                {f"{EMBED}.out": found_here}),
        Mistake("every rank adds a row",
                "For a token that is not yours you add some row of your own. Put zeros there, before the sum; a token "
                "can lie before your rows, or behind them.",
                {f"{EMBED}.out": (summed(clamped), summed(first_row), summed(not_below))}),
        Mistake("added, not multiplied",
                "Whether a token is yours is added to its row. Multiply the row by it: then the rows of other ranks' "
                "tokens are zeros.", {f"{EMBED}.out": summed(added_to_it)}),
        Mistake("another end of a part",
                "A word at the end of a rank's part counts for two ranks, or for none. With mine = my_part(...), a "
                "rank has the words from mine.start up to, and without, mine.stop.",
                {f"{EMBED}.out": tuple(summed(partial(other_ends, how=how)) for how in _OTHER_ENDS),
                 f"{LOSS}.out": tuple(partial(half_masked, how=how) for how in _OTHER_ENDS)}),
        Mistake("parts of equal length",
                "The words need not divide evenly, and then parts differ by one: my_part(vocabulary, group) says where "
                "this rank's begins and ends.", {f"{EMBED}.out": (equal_parts(True), equal_parts(False))}),
        Mistake("mean instead of sum",
                "You divide by the number of ranks. What they add are parts of one sum: one rank has a token's row, "
                "the others zeros.",
                {f"{EMBED}.out": lambda case, rank: (values.tensor(values.record(expected(case)[rank], EMBED), "out")
                                                     / len(group_of(case, rank))),
                 f"{LOSS}.out": lambda case, rank: (losses(case, rank)[counts(case, rank)].mean()
                                                    / len(group_of(case, rank)))}),
        Mistake("number not shifted",
                "Row 0 of `rows` is token my_part(vocabulary).start, not token 0: shift the number.",
                {f"{EMBED}.out": (summed(modulo), summed(unshifted))}),
        Mistake("ignored targets count",
                "Targets of IGNORED count in the mean. Leave them out of the sum and out of the count.",
                {f"{LOSS}.out": (lambda case, rank: (losses(case, rank) * counts(case, rank)).mean(),
                                 lambda case, rank: losses(case, rank).mean(),
                                 lambda case, rank: without_ignored_logits(case, rank).mean(), largest_for_ignored,
                                 lambda case, rank: (without_ignored_logits(case, rank).sum()
                                                     / counts(case, rank).sum()))}),
        Mistake("word 0 left out", "Targets of 0 are left out. Word 0 is one like others; only IGNORED does not count.",
                {f"{LOSS}.out": without_word_0}),
        Mistake("softmax of its own part",
                "The exponentials are summed over this rank's words only. The sum runs over the whole vocabulary.",
                {f"{LOSS}.out": own_softmax}),
        Mistake("a maximum on each rank",
                "Each rank subtracts another number: the largest of its own logits. Reduce it first, with "
                "dist.ReduceOp.MAX, so that all subtract the same.", {f"{LOSS}.out": maxima_of_their_own}),
        Mistake("every rank adds a logit",
                "For a target that is not yours you add some logit of your own. Put a zero there, before the sum; a "
                "target can lie before your words, or behind them.",
                {f"{LOSS}.out": tuple(partial(half_masked, how=how) for how in ("clamped", "first", "below"))}),
        Mistake("the target's logit not summed",
                "Only the rank that has the target's word knows its logit, and the others go on with 0: `leave` it. "
                "(ReduceOp.MAX is no way: logits are negative once the largest is subtracted, so the zeros win.)",
                {f"{LOSS}.out": own_targets}),
        Mistake("sum instead of mean", "You add the losses up. The result is their mean over the targets that count.",
                {f"{LOSS}.out": lambda case, rank: losses(case, rank)[counts(case, rank)].sum()}),
        Mistake("its own targets count",
                "The mean is over the targets that are this rank's words. Every rank takes the mean over all targets "
                "that are not IGNORED.", {f"{LOSS}.out": (own_targets_count, over_own_count)}),
        Mistake("means of parts",
                "Each rank took the mean over its own targets, and these means were put together. Ranks have different "
                "numbers of targets: add up all losses, and divide once by the number of targets that count.",
                {f"{LOSS}.out": (means_of_parts(False), means_of_parts(True))}),
        Mistake("mean of exponentials",
                "The exponentials are averaged over the vocabulary. The logarithm is that of their sum.",
                {f"{LOSS}.out": lambda case, rank: (losses(case, rank)[counts(case, rank)].mean()
                                                    - math.log(whole(case, rank).shape[1]))}),
        Mistake("logits are clamped",
                "Logits beyond some number are cut off, and their losses are wrong. Subtract each token's largest "
                "logit instead: that changes no loss.",
                seen=lambda case, got, wire: "thousands" in case.name and not isinstance(got, Failure)),
        Mistake("wrong sign", "The loss is negative: it is the logarithm minus the target's logit.",
                {f"{LOSS}.out": lambda case, rank: -losses(case, rank)[counts(case, rank)].mean()}),
        Mistake("the target's logit added",
                "The target's logit is added to the logarithm of the sum: subtract it.",
                {f"{LOSS}.out": (logit_added(0), logit_added(1))}),
        Mistake("logits with the other sign",
                "This is the loss of the logits with the other sign: subtract the largest from each logit, not each "
                "logit from the largest.", {f"{LOSS}.out": of_other_signs}),
        Mistake("nothing summed",
                "The loss is made of this rank's logits only: `leave` the sum of exponentials and the target's logit.",
                {f"{LOSS}.out": (nothing_summed(False), nothing_summed(True))}),
        Mistake("losses of parts",
                "Each rank computed a loss of its own words, and these were put together. A logarithm of a sum is no "
                "sum of logarithms: add up exponentials, then take the logarithm.",
                {f"{LOSS}.out": tuple(local_losses(own, mean) for own in (False, True) for mean in (False, True))}),
        Mistake("maximum not subtracted once",
                "The maximum is subtracted from every logit once. From the target's it is subtracted never, or on each "
                "of N ranks.",
                {f"{LOSS}.out": (maximum_subtracted(lambda n: 0), maximum_subtracted(lambda n: n))}),
        Mistake("logits are entered",
                "The gradients of all ranks' logits were added up. Each rank has other words: its logits are its own, "
                "and so is their gradient; what you `leave` passes it on.",
                {f"{LOSS}.gradient": gradient_of_other_words}),
        Mistake("rows are entered",
                "The gradients of all ranks' rows were added up. Each rank has other words: its rows are its own, and "
                "so is their gradient. `enter` is for what is the same on every rank.",
                {f"{EMBED}.gradient": gradient_of_other_words}),
        Mistake("a row without a gradient",
                "The first of a rank's rows gets no gradient. It is a word like others: no padding_idx.",
                {f"{EMBED}.gradient": first_word_untrained}),
        Mistake("softmax of its own targets",
                "A token reaches the gradient of your logits only where its target is yours. Each token's softmax has "
                "all words in it: `leave` sums of exponentials and targets' logits, not losses.",
                {f"{LOSS}.gradient": of_its_own_targets}),
        Mistake("half of the gradient",
                "One of the loss's two parts passes no gradient on: the logarithm of the sum, or the target's logit. "
                "What is detached, or reduced where autograd does not look, is a constant: `leave` both.",
                {f"{LOSS}.gradient": (partial(half_gradient, softmax=True), partial(half_gradient, softmax=False))}),
        Mistake("the gradient given is ignored",
                "This is the gradient of the loss itself. Multiply it by the gradient that backward is given: what "
                "comes behind may scale the loss.", {f"{LOSS}.gradient": incoming_ignored}),
        Mistake("gradient through the maximum",
                "A gradient flows through the maximum that you subtract. It is a constant: take it of "
                "logits.detach().", {f"{LOSS}.gradient": through_the_maximum}),
        Mistake(_OVERFLOW,
                "Large logits give inf or nan. Before exp(), subtract each token's own largest logit, over all ranks "
                "of its group: a maximum for each token, reduced with dist.ReduceOp.MAX."),
        Mistake(_VANISH,
                "All exponentials of a token are 0, because what you subtract is far larger than any of its logits. "
                "Each token has *its own* maximum, over the ranks of *its group*: dist.ReduceOp.MAX, not a sum."),
        Mistake(_MEETS,
                "No logit is large here, and still the loss is inf or nan. So there is an infinite number, or a "
                "division by 0, in your own sums: -inf * 0 is nan. An IGNORED target is no rank's word, so what every "
                "rank puts there, -inf say, is what comes; use torch.where, or put 0 there.",
                ),
        Mistake(NOT_A_NUMBER,
                "The loss is a number and its gradient is not. Take the largest logit of logits.detach(): all_reduce "
                "writes into it, and backward of amax then finds no logit that is equal. Or torch.where hides an inf: "
                "it does so in forward only, and in backward 0 * inf is nan."),
        Mistake("a rank stays away",
                "A rank has left while the others are in an all-reduce. Every rank must call it, also one that has "
                "none of the tokens, or of the targets: it adds zeros.", seen=stays_away),
        Mistake(_GATHERED,
                "Whole logits travelled, or more of them than need be. Reduce a maximum, a sum of exponentials and "
                "the target's logit: three numbers for each target."),
        Mistake(_TABLE,
                "More travelled than the rows of the tokens. Nobody needs the whole table: find your tokens' rows, and "
                "`leave` those."),
        Mistake("gradient reduced again",
                "The gradient is N times too large: a sum that is on every rank already passes its gradient on as it "
                "is.", dict.fromkeys((f"{EMBED}.gradient", f"{LOSS}.gradient"), times_too_often)),
        Mistake(_CHANGED, "After the call a tensor that was given holds other numbers: work on a copy."),
        Mistake(NOTHING, NO_GRADIENT),
    ),
    visible=(
        vocabulary_case("embed, 60 words on 2 ranks", 1221, 2, EMBED, 60),
        vocabulary_case("embed, 61 words on 3 ranks", 1222, 3, EMBED, 61),
        vocabulary_case("embed, 4 ranks in two groups", 1227, 4, EMBED, 60, groups=[[0, 1], [2, 3]]),
        vocabulary_case("loss, 60 words on 2 ranks", 1223, 2, LOSS, 60),
        vocabulary_case("loss, 61 words on 3 ranks, 5 targets ignored", 1224, 3, LOSS, 61, ignored=5),
        vocabulary_case("loss, logits in the thousands", 1225, 2, LOSS, 60, largest=2000.0),
        vocabulary_case(
            "loss, 4 ranks in two groups", 1226, 4, LOSS, 60, ignored=2, groups=[[0, 1], [2, 3]], largest_of_last=2000.0
        ),
    ),
    hints=(
        "Write both for one rank first, with masks: which tokens are mine, and what do I put where they are not?",
        "embed: rows of (tokens - start) where they are mine, zeros elsewhere, then `leave`. The loss is log(sum exp) "
        "minus the target's logit: two values that you can `leave`, after the maximum of all ranks was subtracted.",
        "largest = logits.detach().amax(-1); dist.all_reduce(largest, dist.ReduceOp.MAX, group=group); total = "
        "leave((logits - largest[:, None]).exp().sum(-1), group); right = leave(gathered target logit * mine, group); "
        "((total.log() - right) * counts).sum() / counts.sum().",
    ),
)  # fmt: skip
