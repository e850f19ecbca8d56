"""A communication hook: by hand with buckets of our own, and under torch's DDP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.compare import wrong_value
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.on_ranks.hard_model import HardModel, hard_batch
from labkit.checks.on_ranks.model_state import loss_of
from labkit.checks.structure import WRONG_DTYPE, WRONG_SHAPE, Each
from labkit.checks.values import integer, integers, listed, record, records, tensors, text, texts
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression import sparse
from labkit.exercises.gradient_compression.compression_hook.driver import drive
from labkit.exercises.gradient_compression.hook_means import CAST, MIXED, ORDER, OWN_WHOLE, mean_of, wrong_means
from labkit.exercises.gradient_compression.hook_rounding import MODEL, rounding
from labkit.exercises.gradient_compression.hook_wire import packet_sizes, wrong_on_the_wire
from labkit.exercises.gradient_compression.par import HOOK
from labkit.exercises.gradient_compression.sparse import SPARSE
from labkit.exercises.gradient_compression.unpacked import OWN, ROUNDING, WINDOW, unpacked


def hook_case(
    name: str,
    seed: int,
    world_size: int,
    kind: str,
    steps: Sequence[Sequence[int]],
    *,
    overlap: bool = False,
    group: Sequence[int] | None = None,
    length: int = 3,
    values_first: bool = False,
) -> Case:
    """Return a case: for each step the sizes of its buckets.

    Args:
        name: What is special about it.
        seed: Draws the gradients.
        world_size: Ranks.
        kind: "window" for packets that must be gathered, "rounding" for packets that may be added (of every second
            entry).
        steps: For each step the number of entries of each bucket.
        overlap: Whether it is looked at that the hook does not wait for a work.
        group: Global ranks that take part; None is everybody.
        length: Of a window.
        values_first: Whether a packet has the window's entries before its place.
    """
    members = list(range(world_size)) if group is None else list(group)
    inputs: list[Values] = []
    for rank in range(world_size):
        buffers: list[Value] = [
            [
                normal(part_of(seed, "rank", rank, step, number), size, dtype=torch.float64)
                for number, size in enumerate(sizes)
            ]
            for step, sizes in enumerate(steps)
        ]
        compressor: dict[str, Value] = {
            "kind": kind, "step": 0.25, "every": 2, "start": 2 * rank, "length": length, "values_first": values_first,
        }  # fmt: skip
        mine: dict[str, Value] = {"compressor": compressor, "steps": buffers}
        inputs.append(mine if group is None else {**mine, "group": list(members)})
    return Case(name, world_size, tuple(inputs), {"ranks": [*members], "overlap": overlap})


def ddp_case(name: str, seed: int, world_size: int, steps: int = 2) -> Case:
    """Return a case under torch's DDP, with the hard model in several buckets."""
    inputs: list[Values] = []
    for rank in range(world_size):
        batches = [hard_batch(part_of(seed, "rank", rank, step), 5) for step in range(steps)]
        x, y = [list(each) for each in zip(*batches, strict=True)]
        compressor: dict[str, Value] = {"kind": ROUNDING, "step": 2.0**-12}
        model: dict[str, Value] = {"seed": part_of(seed, "model"), "model": dict(MODEL)}
        inputs.append({**model, "compressor": compressor, "cap": 0.0003, "x": x, "y": y})
    return Case(name, world_size, tuple(inputs), {"ddp": True})


def own_parts_case(
    name: str, seed: int, world_size: int, steps: int = 2, own: str = "Int8", options: Values | None = None
) -> Case:
    """Return a case under torch's DDP in which the learner's own compressor and memory do their part.

    With Int8 in several buckets; else in one, so that no residual is left under the key of a bucket that is no more.
    """
    given = ddp_case(name, seed, world_size, steps)
    parts: dict[str, Value] = {"compressor": {"kind": OWN, "name": own, "options": {**(options or {})}}}
    if own != "Int8":
        parts["cap"] = 25.0
    return Case(name, world_size, tuple({**each, **parts} for each in given.inputs), given.about)


def expected(case: Case) -> list[Values]:
    """Return what each rank must have (the oracle)."""
    if "ddp" in case.about:
        found: dict[str, Value] = {"gradients": [{**step} for step in _ddp_gradients(case)]}
        return [found | ({"waiting": 0.0} if _own(case) else {})] * case.world_size
    steps: list[Value] = [
        {"means": [mean_of(case, step, bucket) for bucket in range(len(buffers))], "changed": False}
        for step, buffers in enumerate(listed(case.inputs[0], "steps"))
    ]
    ranks = integers(case.about, "ranks")
    return [{"steps": steps} if rank in ranks else {"member": False} for rank in range(case.world_size)]


def _own(case: Case) -> str:
    """Return the class of the learner's that compresses, or "" where a stand-in does."""
    about = record(case.inputs[0], "compressor")
    return text(about, "name") if text(about, "kind") == OWN else ""


def structure(case: Case) -> list[Any]:
    """Return what results look like: the oracle's, and what the memory and the bytes' counter have seen."""
    member = {"keys": Each(str), "sent_bytes": int, "written": bool}
    return [{**values, **member} if "steps" in values else values for values in expected(case)]


def _gradients_of_ranks(case: Case) -> list[list[dict[str, Tensor]]]:
    """Return for each step each rank's own gradients, divided by the ranks."""
    model = HardModel(integer(case.inputs[0], "seed"), **MODEL)
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    steps = []
    for step in range(len(tensors(case.inputs[0], "x"))):
        of_ranks = []
        for inputs in case.inputs:
            x, y = tensors(inputs, "x")[step], tensors(inputs, "y")[step]
            gradients = torch.autograd.grad(loss_of(model(x), y), list(trained.values()))
            of_ranks.append({name: each / case.world_size for name, each in zip(trained, gradients, strict=True)})
        steps.append(of_ranks)
    return steps


def _ddp_gradients(case: Case) -> list[dict[str, Tensor]]:
    about = record(case.inputs[0], "compressor")
    return [
        {name: torch.stack([unpacked(about, each[name]) for each in of_ranks]).sum(0) for name in of_ranks[0]}
        for of_ranks in _gradients_of_ranks(case)
    ]


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: what every compressor kept of every bucket."""
    if "ddp" in case.about:
        elements = sum(each.numel() for each in _ddp_gradients(case)[0].values())
        steps = len(tensors(case.inputs[0], "x"))
        if _own(case) in SPARSE:
            return both_ways(range(case.world_size), sparse.kept_of(case, elements) * steps)
        return both_ways(range(case.world_size), elements * steps, 1 if _own(case) else 8)
    ranks = integers(case.about, "ranks")
    return both_ways(ranks, sum(size // 8 - 1 for size in packet_sizes(case, ranks[0])))


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: keys, the wire, then values in the order of time."""
    if "ddp" in case.about:
        yield from _wrong_on_ddp(case, got)
        return
    ranks = integers(case.about, "ranks")
    for rank in ranks:
        yield from _wrong_keys(case, got[rank], rank)
    for step in records(got[ranks[0]], "steps"):
        for mean in listed(step, "means"):
            if isinstance(mean, str):
                name = "a future of something else" if mean.startswith("a future") else "no future"
                yield Finding(name, f"The hook returned {mean}; DDP wants a torch.futures.Future of a tensor.")
    yield from wrong_on_the_wire(case, wire)
    yield from wrong_means(case, got)
    for rank in ranks:
        right, came = sum(packet_sizes(case, rank)), got[rank]["sent_bytes"]
        if got[rank]["written"]:
            yield Finding("writes a residual", f"Rank {rank}: the hook changed feedback.residuals.", rank=rank)
        if came != right:
            message = f"Rank {rank}: state.sent_bytes is {came}, expected {right}."
            yield Finding("bytes not counted", message, f"{right}", f"{came}", rank=rank)


def _wrong_on_ddp(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    if _own(case) in SPARSE:
        yield from sparse.wrong(case, got, _gradients_of_ranks(case))
        return
    allowed = rounding(case)
    for step, wanted in enumerate(_ddp_gradients(case)):
        for rank, values in enumerate(got):
            came = records(values, "gradients")[step]
            for name, right in wanted.items():
                mine = came[name]
                assert isinstance(mine, Tensor)
                if bool(((mine - right).abs() > allowed).any()):
                    ratio = float(mine.flatten()[0] / right.flatten()[0])
                    mistake = "sum instead of mean" if abs(ratio - case.world_size) < 0.05 else "wrong under DDP"
                    what = f"Under torch's DDP, step {step}, rank {rank}: the gradient of {name}"
                    yield wrong_value(mistake, what, mine, right, rank=rank)


def _wrong_keys(case: Case, values: Values, rank: int) -> Iterator[Finding]:
    keys = texts(values, "keys")
    buckets = [
        (place, buffer.numel())
        for buffers in listed(case.inputs[rank], "steps")
        for place, buffer in enumerate(buffers)
    ]
    if len(keys) != len(buckets):
        message = f"Rank {rank}: state.feedback.compress was called {len(keys)} times for {len(buckets)} buckets."
        yield Finding("the memory is not used", message, f"{len(buckets)} calls", f"{len(keys)} calls", rank=rank)
    of_bucket = {
        bucket: {key for _, key in pairs}
        for bucket, pairs in groupby(sorted(zip(buckets, keys, strict=True)), key=lambda pair: pair[0])
    }
    for (place, _), used in of_bucket.items():
        if len(used) > 1:
            message = f"Rank {rank}: bucket {place} had the keys {', '.join(sorted(used))}."
            yield Finding("another key in every step", message, rank=rank)
        # a bucket that is built anew may keep its key, if the hook has dropped the residual of the old size
        shared = {key for (other, _), theirs in of_bucket.items() if other != place for key in used & theirs}
        if shared:
            message = f"Rank {rank}: several buckets have the key {min(shared)}."
            yield Finding("one key for several buckets", message, rank=rank)


_WORLD, _THEN = "all ranks of the world", "communicates in then"


def _hangs(case: Case, got: Got, wire: Wire, *, everybody: bool) -> bool:
    """Return whether a run hangs, where all ranks take part or where some do not."""
    hangs = isinstance(got, Failure) and got.kind in HANGS
    some = "ranks" in case.about and len(integers(case.about, "ranks")) < case.world_size
    return hangs and some is not everybody


EXERCISE = declared(
    id="compression_hook",
    functions=("compression_hook",),
    given=("Packet", "HookState", "Int8", "TopK", "RandomK", "num_kept", "ErrorFeedback"),
    driver=drive,
    torchs_own=True,
    oracle=expected,
    looks=(find,),
    least=least_traffic,
    mistakes=(
        Mistake("the residual of an old bucket",
                "DDP rebuilds its buckets after the first step, so bucket 0 has another size then. Put the size "
                "into the key: (bucket.index(), bucket.buffer().numel()).",
                says=("a bucket of another size",), certain=True),
        Mistake("the other parts are added too",
                "Only the first part of an addable packet is summed; the others are the same on all ranks and stay.",
                says=("only the first part may be added",), certain=True),
        Mistake("parts left out",
                "A sum replaces the first part alone, and the seed is missing: (total, *packet.parts[1:]).",
                says=("index out of range, in a callback", "not enough values to unpack"), certain=True),
        Mistake("added what cannot be added",
                "This compressor's packets cannot be added: gather every part. Look at compressor.addable.",
                says=("starts were added up",), certain=True),
        Mistake(_THEN,
                "Collectives met that do not belong together, or one never came: it was started inside .then, which "
                "ranks reach in any order. Start all of them in the hook itself, and only compute in .then.",
                says=("disagree about the size",), seen=partial(_hangs, everybody=True), certain=True),
        Mistake("arguments with other names",
                "torch's DDP looks for an argument that is named bucket: def compression_hook(state, bucket).",
                says=("KeyError: 'bucket'",), certain=True),
        Mistake("a future of something else", "What .then() is given returns the mean gradient, a flat tensor."),
        Mistake("no future",
                "DDP wants a torch.futures.Future: return work.get_future().then(...).",
                says=("Future object",), certain=True),
        Mistake(_WORLD,
                "A rank waits for ranks that do not take part: pass group=state.group to the collective.",
                seen=partial(_hangs, everybody=False), certain=True),
        Mistake("one buffer for all ranks",
                "All ranks' packets are the same: [tensor] * N is N times the same tensor. Make a new one for each: "
                "[torch.empty_like(part) for _ in range(N)]."),
        Mistake("divided twice", "Divided by the number of ranks twice."),
        Mistake(ORDER,
                "Each rank adds the packets in another order, and floats do not add up to the same then: the models "
                "drift apart. Add them in the order of the ranks."),
        Mistake(OWN_WHOLE,
                "Your own gradient was added whole, the others' as their packets: what you add and what your residual "
                "keeps are then both there. Unpack your own packet as well."),
        Mistake(MIXED,
                "Entries of one rank were unpacked with another rank's place: all parts of a packet belong together. "
                "Gather every part, and unpack those of one rank at a time."),
        Mistake(CAST,
                "The mean is right to about seven digits only: a part was cast on its way. Each part travels in its "
                "own dtype, in a collective of its own."),
        Mistake("writes a residual",
                "The hook put something into feedback.residuals. state.feedback.compress keeps there what this rank "
                "has not sent; nothing else belongs there, or it is lost."),
        Mistake(WRONG_SHAPE,
                "What a collective brings is a part of a packet. The future's value is what it unpacks to, "
                "feedback.decompress(packet), in the shape of the buffer."),
        Mistake(WRONG_DTYPE, "The mean has the dtype of the buffer: leave it as decompress returns it."),
        Mistake("lost on its way",
                "What was applied plus what still waits is less than all gradients: look at what the residual keeps "
                "of a gradient that was divided, and at the packets of other ranks."),
        Mistake("the memory is not used",
                "Compress through state.feedback, once for each bucket: otherwise, what is not sent is lost."),
        Mistake("one key for several buckets",
                "Two buckets share a residual: the key is (bucket.index(), bucket.buffer().numel())."),
        Mistake("another key in every step",
                "The same bucket has another key in the next step, so its residual is never used: an id() or a "
                "counter is no key."),
        Mistake("gathers what can be added",
                "This compressor is addable: one all_reduce of parts[0]. Gathering grows with the number of ranks."),
        Mistake("more than packets travels",
                "More bytes travel than the packets have: compress first, unpack after the exchange."),
        Mistake("waits inside the hook",
                "The hook waits before it returns, so backward stops and nothing overlaps: async_op=True, no wait() "
                "for a work or for its future, and put the rest into .then(...)."),
        Mistake("sum instead of mean",
                "The sum over the ranks came back: a hook must give the mean, and DDP has not divided."),
        Mistake("divided after compressing",
                "You divide after compressing. Divide the buffer first: sums of float16 overflow, and the residual "
                "would be in other units."),
        Mistake("only my own packet", "The value of the future is this rank's own packet: unpack what all ranks sent."),
        Mistake("own packet left out", "Your own packet is missing in the sum: it counts like all others."),
        Mistake("the buffer was changed",
                "bucket.buffer() was changed: buffer / n makes a new tensor, buffer /= n does not."),
        Mistake("a wrong mean",
                "Add up by hand what must come: each rank's packet, unpacked with its own parts. Have all parts come "
                "when .then reads them? collect_all waits for several futures, a single one for its own.",
                general=True),
        Mistake("bytes not counted", "Add wire_bytes(packet) of its own packet once a bucket, whoever receives it."),
    ),
    structure=structure,
    visible=(
        hook_case("3 ranks, packets that must be gathered", 661, 3, WINDOW, [(40,), (40,)]),
        hook_case("3 ranks, packets that may be added", 662, 3, ROUNDING, [(11,), (11,)]),
        hook_case(
            "2 ranks, three buckets, and the hook must not wait",
            663,
            2,
            WINDOW,
            [(40, 40, 40)] * 2,
            overlap=True,
            values_first=True,
        ),
        hook_case(
            "3 ranks, three buckets that may be added, and no waiting", 664, 3, ROUNDING, [(5, 9, 4)] * 2, overlap=True
        ),
        hook_case(
            "3 ranks, buckets rebuilt after the first step", 665, 3, WINDOW, [(60, 40), (40, 30, 30), (40, 30, 30)]
        ),
        hook_case("4 ranks, of which 0, 1 and 3 take part", 667, 4, WINDOW, [(40,)], group=(0, 1, 3)),
        hook_case("4 ranks, packets that overlap: the same bits on every rank", 669, 4, WINDOW, [(40,)], length=30),
        ddp_case("3 ranks under torch's DDP, two steps", 666, 3),
        own_parts_case("2 ranks under DDP: your TopK, your memory, your hook", 668, 2, 3, "TopK", {"ratio": 0.1}),
    ),
    hints=(
        "What must happen at once, while backward continues, and what only when all has arrived? Pass that to .then.",
        "Compress buffer / N with the key (index, numel). Addable: all_reduce of parts[0] with async_op=True, and its "
        "future unpacks this packet. Else an asynchronous all_gather for each part, collect_all of their futures, and "
        "then add up the unpacked packets. No wait() anywhere.",
        "return work.get_future().then(lambda _: feedback.decompress(packet)); and "
        "torch.futures.collect_all([work.get_future() for work in works]).then(add_up), where add_up sums "
        "feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered).",
    ),
    par=HOOK,
)  # fmt: skip
