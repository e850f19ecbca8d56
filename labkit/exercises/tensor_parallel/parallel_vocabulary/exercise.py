"""A cut vocabulary: an embedding, and a cross-entropy without gathering logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks import draws, values
from labkit.checks.case import Case, Value, Values
from labkit.checks.declared import Mistake, Way, declared, tensor_result
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.groups import group_of
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import NOTHING
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import NO_GRADIENT, given, part
from labkit.exercises.tensor_parallel.parallel_vocabulary.driver import drive
from labkit.models import IGNORED

EMBED, LOSS = "embed", "cross_entropy"
MOST_NUMBERS, NUMBER_BYTES = 4, 8


def vocabulary_case(
    name: str, seed: int, world_size: int, which: str, vocabulary: int, *, ignored: int = 0, largest: float = 1.0,
    groups: list[list[int]] | None = None,
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
        groups: Ranks that share a vocabulary; None is all.
    """
    shared: dict[str, Value] = {"groups": [list(each) for each in groups]} if groups else {}
    whole = Case(name, world_size, (shared,) * world_size)
    generator = draws.generator(part_of(seed, "tokens"))
    tokens = torch.randint(0, vocabulary, (3, 4), generator=generator)
    if which == LOSS:
        tokens = tokens.flatten()
        tokens[torch.randperm(12, generator=generator)[:ignored]] = IGNORED
    gradient = normal(part_of(seed, "gradient"), 3, 4, 6, dtype=torch.float64)
    inputs: list[Values] = []
    for rank in range(world_size):
        mine = part(vocabulary, whole, rank)
        size = mine.stop - mine.start
        shape = (size, 6) if which == EMBED else (12, size)
        more: dict[str, Value] = {"function": which, "tokens": tokens, "vocabulary": vocabulary}
        more["part"] = normal(part_of(seed, "rank", rank), *shape, scale=largest, dtype=torch.float64)
        more["gradient"] = gradient if which == EMBED else torch.tensor(2.0, dtype=torch.float64)
        inputs.append({**whole.inputs[rank], **more})
    return Case(name, world_size, tuple(inputs))


def _tokens(case: Case) -> Tensor:
    return given(case, 0, "tokens")


def _whole(case: Case, rank: int) -> Tensor:
    """Return the whole table, or the whole logits, of a rank's group."""
    dim = 0 if case.inputs[rank]["function"] == EMBED else 1
    return torch.cat([given(case, each, "part") for each in group_of(case, rank)], dim)


def _mine(case: Case, rank: int) -> slice:
    return part(values.integer(case.inputs[rank], "vocabulary"), case, rank)


def expected(case: Case) -> list[Values]:
    """Return what each rank gets: what torch computes with the whole table or the whole logits."""
    which, found = values.text(case.inputs[0], "function"), list[Values]()
    for rank in range(case.world_size):
        whole, mine = _whole(case, rank).requires_grad_(), _mine(case, rank)
        if which == EMBED:
            out = functional.embedding(_tokens(case), whole)
        else:
            out = functional.cross_entropy(whole, _tokens(case), ignore_index=IGNORED)
        torch.autograd.backward(out, given(case, rank, "gradient"))
        assert whole.grad is not None
        gradient = whole.grad[mine] if which == EMBED else whole.grad[:, mine]
        found.append({which: {"out": out.detach(), "kept": given(case, rank, "part"), "gradient": gradient}})
    return found


def _times_too_often(case: Case, rank: int) -> Tensor:
    (right,) = expected(case)[rank].values()
    return len(group_of(case, rank)) * values.tensor(right, "gradient")  # type: ignore[arg-type]


def _found_here(case: Case, rank: int) -> Tensor:
    """Return the rows of a rank's own tokens, zeros for the others."""
    tokens, mine = _tokens(case), _mine(case, rank)
    here = (tokens >= mine.start) & (tokens < mine.stop)
    return torch.mul(_whole(case, rank)[tokens], here[..., None])


def _summed(rows: Callable[[Tensor, Tensor, slice], Tensor]) -> Way:
    """Return what the ranks' rows add up to, where each takes rows(tokens, its part of the table, its bounds)."""

    def way(case: Case, rank: int) -> Tensor:
        members = group_of(case, rank)
        return torch.stack([rows(_tokens(case), given(case, each, "part"), _mine(case, each)) for each in members]).sum(
            0
        )

    return way


def _clamped(tokens: Tensor, of: Tensor, mine: slice) -> Tensor:
    return of[(tokens - mine.start).clamp(0, len(of) - 1)]


def _first_row(tokens: Tensor, of: Tensor, mine: slice) -> Tensor:
    place = tokens - mine.start
    return of[torch.where((place >= 0) & (place < len(of)), place, 0)]


def _modulo(tokens: Tensor, of: Tensor, mine: slice) -> Tensor:
    here = (tokens >= mine.start) & (tokens < mine.stop)
    return torch.mul(of[tokens % len(of)], here[..., None])


def _unshifted(tokens: Tensor, of: Tensor, mine: slice) -> Tensor:
    return torch.mul(of[tokens.clamp_max(len(of) - 1)], (tokens < len(of))[..., None])


def _counts(case: Case) -> Tensor:
    return _tokens(case) != IGNORED


def _losses(case: Case, rank: int) -> Tensor:
    return functional.cross_entropy(_whole(case, rank), _tokens(case).clamp_min(0), reduction="none")


def _logits_of_targets(case: Case, rank: int) -> Tensor:
    return _whole(case, rank).gather(1, _tokens(case).clamp_min(0)[:, None])[:, 0]


def _without_ignored_logits(case: Case, rank: int) -> Tensor:
    return _whole(case, rank).logsumexp(1) - _logits_of_targets(case, rank) * _counts(case)


def _largest_for_ignored(case: Case, rank: int) -> Tensor:
    whole = _whole(case, rank)
    return torch.where(_counts(case), _losses(case, rank), whole.logsumexp(1) - whole.amax(1)).mean()


def _own_softmax(case: Case, rank: int) -> Tensor:
    own = given(case, rank, "part").logsumexp(1) - _logits_of_targets(case, rank)
    return (own * _counts(case)).sum() / _counts(case).sum()


def _overflows(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that a loss is inf or nan."""
    for rank, came in enumerate(got):
        loss = values.tensor(values.record(came, LOSS), "out") if LOSS in came else torch.zeros(())
        if not bool(loss.isfinite().all()):
            right = values.tensor(values.record(expected(case)[rank], LOSS), "out")
            yield Finding(_OVERFLOW, f"The loss on rank {rank} is {loss.item()}.", f"{right.item():.6g}", rank=rank)


def _too_much(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that more travelled than the loss needs."""
    targets = _tokens(case).numel()
    most = MOST_NUMBERS * NUMBER_BYTES * targets
    for rank, came in enumerate(got):
        moved = sum(call.bytes for call in wire.collectives if call.rank == rank) + wire.bytes_sent(rank)
        if LOSS in came and moved > most:
            sent = f"exchanged {moved} bytes for {targets} targets; {most} are the most"
            yield Finding(_GATHERED, f"The loss is right, but rank {rank} {sent}.", rank=rank)


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: of each rank a number for every target that counts, or a row for each of its tokens."""
    tokens = values.tensor(case.inputs[0], "tokens")
    return both_ways(
        range(case.world_size), int((tokens != IGNORED).sum()) if case.inputs[0]["function"] == LOSS else 6
    )


_OVERFLOW, _GATHERED, _CHANGED = "exponentials overflow", "logits gathered", "logits were changed"

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
                tensor_result(f"{name}.kept", "what was given", _CHANGED),
                tensor_result(f"{name}.out", "the result"),
                tensor_result(f"{name}.gradient", "the gradient of what this rank has"),
            )
        ),
        _too_much,
    ),
    mistakes=(
        Mistake("not summed",
                "Tokens of other ranks are missing: `leave` what you found, zeros where a token is not yours.",
                {f"{EMBED}.out": _found_here}),
        Mistake("every rank adds a row",
                "For a token that is not yours you add some row of your own. Put zeros there, before the sum.",
                {f"{EMBED}.out": (_summed(_clamped), _summed(_first_row))}),
        Mistake("number not shifted",
                "Row 0 of `rows` is token my_part(vocabulary).start, not token 0: shift the number.",
                {f"{EMBED}.out": (_summed(_modulo), _summed(_unshifted))}),
        Mistake("ignored targets count",
                "Targets of IGNORED count in the mean. Leave them out of the sum and out of the count.",
                {f"{LOSS}.out": (lambda case, rank: (_losses(case, rank) * _counts(case)).mean(),
                                 lambda case, rank: _losses(case, rank).mean(),
                                 lambda case, rank: _without_ignored_logits(case, rank).mean(), _largest_for_ignored,
                                 lambda case, rank: _without_ignored_logits(case, rank).sum() / _counts(case).sum())}),
        Mistake("softmax of its own part",
                "The exponentials are summed over this rank's tokens only. The sum runs over the whole vocabulary.",
                {f"{LOSS}.out": _own_softmax}),
        Mistake(_OVERFLOW,
                "Large logits give inf or nan. Subtract the largest logit before exp(); it must be the largest of "
                "*all* ranks, so reduce it with dist.ReduceOp.MAX."),
        Mistake(_GATHERED,
                "Whole logits travelled, or more of them than need be. Reduce a maximum, a sum of exponentials and "
                "the target's logit: three numbers for each target."),
        Mistake("gradient reduced again",
                "The gradient is N times too large: a sum that is on every rank already passes its gradient on as it "
                "is.", dict.fromkeys((f"{EMBED}.gradient", f"{LOSS}.gradient"), _times_too_often)),
        Mistake(_CHANGED, "After the call the logits hold other numbers: work on a copy."),
        Mistake(NOTHING, NO_GRADIENT),
    ),
    visible=(
        vocabulary_case("embed, 12 tokens on 2 ranks", 1221, 2, EMBED, 12),
        vocabulary_case("embed, 11 tokens on 3 ranks", 1222, 3, EMBED, 11),
        vocabulary_case("loss, 60 tokens on 2 ranks", 1223, 2, LOSS, 60),
        vocabulary_case("loss, 61 tokens on 3 ranks, 5 targets ignored", 1224, 3, LOSS, 61, ignored=5),
        vocabulary_case("loss, logits in the thousands", 1225, 2, LOSS, 60, largest=2000.0),
        vocabulary_case("loss, 4 ranks in two groups", 1226, 4, LOSS, 60, ignored=2, groups=[[0, 1], [2, 3]]),
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
