"""A cut vocabulary: an embedding, and a cross-entropy without gathering logits."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks import draws, values
from labkit.checks.as_if import Way
from labkit.checks.case import Case, Value, Values
from labkit.checks.draws import normal, part_of
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import NOTHING
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import NO_GRADIENT, members, part, wrong_tensors
from labkit.exercises.tensor_parallel.parallel_vocabulary.driver import drive
from labkit.models import IGNORED

EMBED, LOSS = "embed", "cross_entropy"
MOST_NUMBERS, NUMBER_BYTES = 4, 8
_UNSUMMED, _FIRST_ROW, _PLACE, _IGNORED, _OWN_SOFTMAX, _OVERFLOW, _GATHERED, _TIMES, _CHANGED = (
    "not summed", "every rank adds a row", "number not shifted", "ignored targets count", "softmax of its own part",
    "exponentials overflow", "logits gathered", "gradient reduced again", "logits were changed",
)  # fmt: skip
MISTAKES = {
    _UNSUMMED: "Tokens of other ranks are missing: `leave` what you found, zeros where a token is not yours.",
    _FIRST_ROW: "For a token that is not yours you add some row of your own. Put zeros there, before the sum.",
    _PLACE: "Row 0 of `rows` is token my_part(vocabulary).start, not token 0: shift the number.",
    _IGNORED: "Targets of IGNORED count in the mean. Leave them out of the sum and out of the count.",
    _OWN_SOFTMAX: "The exponentials are summed over this rank's tokens only. The sum runs over the whole vocabulary.",
    _OVERFLOW: "Large logits give inf or nan. Subtract the largest logit before exp(); it must be the largest of *all* "
    "ranks, so reduce it with dist.ReduceOp.MAX.",
    _GATHERED: "Whole logits travelled, or more of them than need be. Reduce a maximum, a sum of exponentials and the "
    "target's logit: three numbers for each target.",
    _TIMES: "The gradient is N times too large: a sum that is on every rank already passes its gradient on as it is.",
    _CHANGED: "After the call the logits hold other numbers: work on a copy.",
    NOTHING: NO_GRADIENT,
}


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


def _asked(case: Case, rank: int = 0) -> tuple[str, Tensor, Tensor, Tensor]:
    """Return which function, the tokens, the whole numbers, and the gradient of the result."""
    inputs, dim = case.inputs[rank], 0 if case.inputs[rank]["function"] == EMBED else 1
    whole = torch.cat([values.tensor(case.inputs[each], "part") for each in members(case, rank)], dim)
    return values.text(inputs, "function"), values.tensor(inputs, "tokens"), whole, values.tensor(inputs, "gradient")


def expected(case: Case) -> list[Values]:
    """Return what each rank gets: what torch computes with the whole table or the whole logits."""
    found: list[Values] = []
    for rank in range(case.world_size):
        which, tokens, whole, gradient = _asked(case, rank)
        whole = whole.clone().requires_grad_()
        if which == EMBED:
            out = functional.embedding(tokens, whole)
        else:
            out = functional.cross_entropy(whole, tokens, ignore_index=IGNORED)
        torch.autograd.backward(out, gradient)
        assert whole.grad is not None
        mine = part(values.integer(case.inputs[rank], "vocabulary"), case, rank)
        kept = values.tensor(case.inputs[rank], "part")
        grad = whole.grad[mine] if which == EMBED else whole.grad[:, mine]
        found.append({"out": out.detach(), "kept": kept, "gradient": grad})
    return found


def _out_ways(case: Case, rank: int) -> list[Way[Tensor]]:
    which, tokens, whole, _ = _asked(case, rank)
    own, mine = (
        values.tensor(case.inputs[rank], "part"),
        part(values.integer(case.inputs[rank], "vocabulary"), case, rank),
    )
    here = (tokens >= mine.start) & (tokens < mine.stop)
    if which == LOSS:
        losses = functional.cross_entropy(whole, tokens.clamp_min(0), reduction="none")
        counts = tokens != IGNORED
        picked = whole.gather(1, tokens.clamp_min(0)[:, None])[:, 0]
        return [
            (_IGNORED, lambda: (losses * counts).mean()),
            (_IGNORED, lambda: losses.mean()),
            (_IGNORED, lambda: (whole.logsumexp(1) - picked * counts).mean()),
            (_IGNORED, lambda: torch.where(counts, losses, whole.logsumexp(1) - whole.amax(1)).mean()),
            (_IGNORED, lambda: (whole.logsumexp(1) - picked * counts).sum() / counts.sum()),
            (_OWN_SOFTMAX, lambda: ((own.logsumexp(1) - picked) * counts).sum() / counts.sum()),
        ]
    parts = {each: values.tensor(case.inputs[each], "part") for each in members(case, rank)}
    bounds = {each: part(len(whole), case, each) for each in parts}

    def unmasked(place: Tensor, of: Tensor, clamp: bool) -> Tensor:
        rows = place.clamp(0, len(of) - 1) if clamp else torch.where((place >= 0) & (place < len(of)), place, 0)
        return functional.embedding(rows, of)

    found: list[Way[Tensor]] = [(_UNSUMMED, lambda: whole[tokens] * here[..., None])]
    for clamp in (True, False):
        found.append((_FIRST_ROW, lambda clamp=clamp: torch.stack(
            [unmasked(tokens - bounds[each].start, parts[each], clamp) for each in parts]).sum(0)))  # type: ignore[misc]  # fmt: skip

    def modulo(each: int) -> Tensor:
        here = (tokens >= bounds[each].start) & (tokens < bounds[each].stop)
        return torch.mul(parts[each][tokens % len(parts[each])], here[..., None])

    def unshifted(of: Tensor) -> Tensor:
        found: Tensor = functional.embedding(tokens.clamp_max(len(of) - 1), of) * (tokens < len(of))[..., None]
        return found

    found.append((_PLACE, lambda: torch.stack([modulo(each) for each in parts]).sum(0)))
    found.append((_PLACE, lambda: torch.stack([unshifted(of) for of in parts.values()]).sum(0)))
    return found


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: overflow, results, gradients, what travelled."""
    right = expected(case)
    is_loss = values.text(case.inputs[0], "function") == LOSS
    for rank, came in enumerate(got):
        if is_loss and not bool(values.tensor(came, "out").isfinite().all()):
            text = f"The loss on rank {rank} is {values.tensor(came, 'out').item()}."
            yield Finding(_OVERFLOW, text, f"{values.tensor(right[rank], 'out').item():.6g}", rank=rank)
    yield from wrong_tensors(
        got, right, "kept", "what was given", lambda rank: [(_CHANGED, lambda: values.tensor(got[rank], "kept"))]
    )
    yield from wrong_tensors(got, right, "out", "the result", lambda rank: _out_ways(case, rank))
    yield from wrong_tensors(
        got, right, "gradient", "the gradient of what this rank has",
        lambda rank: [(_TIMES, lambda: len(members(case, rank)) * values.tensor(right[rank], "gradient"))],
    )  # fmt: skip
    if is_loss:
        targets = values.tensor(case.inputs[0], "tokens").numel()
        most = MOST_NUMBERS * NUMBER_BYTES * targets
        for rank in range(case.world_size):
            moved = sum(call.bytes for call in wire.collectives if call.rank == rank) + wire.bytes_sent(rank)
            if moved > most:
                sent = f"exchanged {moved} bytes for {targets} targets; {most} are the most"
                text = f"The loss is right, but rank {rank} {sent}."
                yield Finding(_GATHERED, text, rank=rank)


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: of each rank a number for every target that counts, or a row for each of its tokens."""
    tokens = values.tensor(case.inputs[0], "tokens")
    return both_ways(
        range(case.world_size), int((tokens != IGNORED).sum()) if case.inputs[0]["function"] == LOSS else 6
    )


EXERCISE = Exercise(
    id="parallel_vocabulary",
    functions=(EMBED, LOSS),
    driver=drive,
    oracle=expected,
    find=find,
    least=least,
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
    mistakes=MISTAKES,
)
