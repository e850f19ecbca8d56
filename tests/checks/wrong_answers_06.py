"""Wrong answers to lesson 06, each a mistake that learners really make, and the mistake a check must name.

Most of them are the lesson's own answer with one thing changed, so that nothing else is wrong.
"""

from __future__ import annotations

from functools import cache

from tests.checks.lesson_cells import lesson
from tests.checks.wrong_answer import WrongAnswer

WRONG: list[WrongAnswer] = []


@cache
def _answer(exercise: str) -> str:
    (cell,) = [cell for cell in lesson("06").cells if cell.role == "exercise" and cell.exercise == exercise]
    return cell.source


def changed(exercise: str, name: str, mistake: str, *changes: tuple[str, str]) -> None:
    """Add the lesson's answer with each of the texts replaced."""
    source = _answer(exercise)
    for old, new in changes:
        assert old in source, f"{exercise}, {name}: the answer has no {old!r}"
        source = source.replace(old, new)
    WRONG.append(WrongAnswer(exercise, name, mistake, source))


# ---- fewer_bits

BYTES = "return sum(part.numel() * part.element_size() for part in packet.parts)"
CODES = "codes = (gradient / scale).round().clamp(-127, 127).to(torch.int8)"
changed(
    "fewer_bits", "counts entries", "entries instead of bytes", (BYTES, "return sum(p.numel() for p in packet.parts)")
)
changed(
    "fewer_bits",
    "the first part",
    "the first part only",
    (BYTES, "return packet.parts[0].numel() * packet.parts[0].element_size()"),
)
changed("fewer_bits", "the gradient's own bytes", "bytes of the gradient", (BYTES, "return packet.shape.numel() * 4"))
changed("fewer_bits", "a plain cast", "infinite", ("gradient.clamp(-largest, largest).to", "gradient.to"))
changed(
    "fewer_bits", "no cast", "nothing is cast", ("gradient.clamp(-largest, largest).to(self.dtype)", "gradient.clone()")
)
changed(
    "fewer_bits", "stays in 16 bits", "dtype lost", ("packet.parts[0].to(packet.dtype).view", "packet.parts[0].view")
)
changed(
    "fewer_bits",
    "stays flat",
    "shape lost",
    ("scale.to(packet.dtype)).view(packet.shape)", "scale.to(packet.dtype)).flatten()"),
)
changed("fewer_bits", "cuts off", "cut off instead of rounded", (CODES, CODES.replace(".round()", "")))
changed(
    "fewer_bits",
    "a scale of largest over 128",
    "one step too far",
    ("/ 127)", "/ 128)"),
    (".clamp(-127, 127)", ""),
    ("(gradient / scale).round().to(torch.int8)", "(gradient / scale).round().to(torch.int64).to(torch.int8)"),
)
changed("fewer_bits", "no scale on the way back", "scale forgotten", (" * scale.to(packet.dtype)", ""))
changed(
    "fewer_bits",
    "scale zero",
    "zero over zero",
    (".clamp(min=1e-30)", ""),
    ("codes.to(packet.dtype) * scale", "(codes.to(packet.dtype) / scale * scale) * scale"),
)
changed("fewer_bits", "codes in 16 bits", "too many bytes", ("to(torch.int8)", "to(torch.int16)"))
changed("fewer_bits", "clamps in place", "gradient changed", ("gradient.clamp(", "gradient.clamp_("))
changed(
    "fewer_bits",
    "a tuple for a packet",
    "no packet",
    ("return Packet((codes, scale), gradient.shape, gradient.dtype)", "return codes, scale"),
)
changed(
    "fewer_bits",
    "adds a little to the scale",
    "the scale of a small gradient is too large",
    (".clamp(min=1e-30)", ".add(1e-8)"),
)

# ---- one_bit

BITS = "bits = pack_bits(gradient.flatten() < 0)"
MEAN = "gradient.abs().mean().to(torch.float32)"
changed(
    "one_bit",
    "a byte each",
    "a byte for each sign",
    (BITS, "bits = (gradient.flatten() < 0).to(torch.uint8)"),
    ("unpack_bits(bits, packet.shape.numel())", "bits"),
)
changed("one_bit", "bits of what is positive", "the signs the wrong way round", ("< 0", "> 0"))
changed("one_bit", "at most zero", "zeros count as negative", ("< 0", "<= 0"))
changed("one_bit", "no magnitude", "magnitude forgotten", (" * magnitude.to(packet.dtype)", ""))
changed("one_bit", "mean of the entries", "mean of the entries", (MEAN, "gradient.mean().to(torch.float32)"))
changed("one_bit", "the largest", "the largest magnitude", (MEAN, MEAN.replace("mean", "max")))
changed("one_bit", "bits not used", "signs lost", ("(1 - 2 * negative)", "(1 - 0 * negative)"))
changed("one_bit", "flat", "shape lost", (".view(packet.shape)", ""))
changed("one_bit", "a mask of rows", "a mask that is not flat", (BITS, "bits = pack_bits(gradient < 0)"))
changed(
    "one_bit",
    "remembers the number of entries",
    "decompress uses what compress left behind",
    (BITS, "self.entries = gradient.numel()\n        " + BITS),
    ("unpack_bits(bits, packet.shape.numel())", "unpack_bits(bits, self.entries)"),
)

# ---- few_entries

PLACES = "places = flat.abs().topk(num_kept(self.ratio, flat.numel())).indices"
TOPK = "return Packet((flat[places], places.to(torch.int32)), gradient.shape, gradient.dtype)"
changed("few_entries", "the post", "signs lost", ("Packet((flat[places],", "Packet((flat.abs()[places],"))
changed("few_entries", "largest entries", "largest instead of largest magnitude", ("flat.abs().topk", "flat.topk"))
changed("few_entries", "int64 places", "places of eight bytes", ("places.to(torch.int32)", "places"))
changed(
    "few_entries",
    "one too many",
    "another number of entries",
    ("topk(num_kept(self.ratio, flat.numel()))", "topk(num_kept(self.ratio, flat.numel()) + 1)"),
)
changed("few_entries", "draws the same again", "the same places in every call", ("        self.num_calls += 1\n", ""))
changed(
    "few_entries",
    "seeds of its own",
    "the seed is not used",
    ("torch.tensor([self.seed + self.num_calls])", "torch.randint(0, 10**6, (1,))"),
)
changed(
    "few_entries",
    "a count for a seed",
    "every seed draws the same",
    ("[self.seed + self.num_calls]", "[self.num_calls]"),
)
changed(
    "few_entries",
    "unbiased",
    "scaled up",
    (
        "Packet((flat[self.places(seed, flat.numel())], seed)",
        "Packet((flat[self.places(seed, flat.numel())] / self.ratio, seed)",
    ),
)
changed(
    "few_entries",
    "places travel too",
    "places travel",
    (
        "Packet((flat[self.places(seed, flat.numel())], seed)",
        "Packet((flat[self.places(seed, flat.numel())], seed, self.places(seed, flat.numel()))",
    ),
    ("        values, seed = packet.parts\n", "        values, seed, _ = packet.parts\n"),
)
changed(
    "few_entries",
    "the generator is kept",
    "decompress uses what compress left behind",
    ("        self.num_calls += 1\n", "        self.num_calls += 1\n        self.last = seed\n"),
    ("flat[self.places(seed, flat.numel())] = values", "flat[self.places(self.last, flat.numel())] = values"),
)
LOT = "return torch.randperm(num_entries, generator=generator)[: num_kept(self.ratio, num_entries)]"
changed(
    "few_entries",
    "rounds the number kept",
    "another number of entries",
    ("topk(num_kept(self.ratio, flat.numel()))", "topk(max(1, round(self.ratio * flat.numel())))"),
)
changed(
    "few_entries",
    "zeros travel",
    "zeros travel",
    (TOPK, "return Packet((torch.zeros_like(flat).index_put((places,), flat[places]),), gradient.shape, flat.dtype)"),
    ("        values, places = packet.parts\n", "        return packet.parts[0].view(packet.shape)\n"),
)
changed(
    "few_entries",
    "always float32",
    "dtype lost",
    (
        "torch.zeros(packet.shape.numel(), dtype=packet.dtype, device=values.device)",
        "torch.zeros(packet.shape.numel())",
    ),
    ("flat[places.long()] = values", "flat[places.long()] = values.float()"),
)
changed(
    "few_entries",
    "draws with replacement",
    "a place drawn twice",
    (LOT, "return torch.randint(num_entries, (num_kept(self.ratio, num_entries),), generator=generator)"),
)
changed(
    "few_entries",
    "sets torch's own generator",
    "the global generator is disturbed",
    ("torch.Generator().manual_seed(", "torch.manual_seed("),
)
changed(
    "few_entries",
    "unpacks from its own counter",
    "values in other places",
    ("flat[self.places(seed, flat.numel())] = values", "flat[self.places(self.seed + 1, flat.numel())] = values"),
)

# ---- error_feedback

CORRECTED = "corrected = gradient + self.residuals[key] if key in self.residuals else gradient.clone()"
KEPT = "self.residuals[key] = corrected - self.compressor.decompress(packet)"
changed("error_feedback", "compresses the gradient alone", "no memory", (CORRECTED, "corrected = gradient.clone()"))
changed(
    "error_feedback",
    "gradient minus sent",
    "the old residual is forgotten",
    (KEPT, KEPT.replace("= corrected", "= gradient")),
)
changed(
    "error_feedback",
    "the other way round",
    "the residual has the wrong sign",
    (KEPT, "self.residuals[key] = self.compressor.decompress(packet) - corrected"),
)
changed(
    "error_feedback",
    "one residual",
    "one residual for all keys",
    ("self.residuals[key]", "self.residuals[0]"),
    ("if key in", "if 0 in"),
    (
        "        return packet\n        # END",
        "        self.residuals[key] = self.residuals[0]\n        return packet\n        # END",
    ),
)
changed(
    "error_feedback",
    "in place",
    "gradient changed",
    (CORRECTED, "corrected = gradient.add_(self.residuals.get(key, 0))"),
)
changed(
    "error_feedback",
    "keeps what was sent",
    "the residual is what was sent",
    (KEPT, "self.residuals[key] = self.compressor.decompress(packet)"),
)
changed(
    "error_feedback", "keeps everything", "the residual is all there was", (KEPT, "self.residuals[key] = corrected")
)
changed(
    "error_feedback",
    "adds to the old one",
    "residuals pile up",
    (KEPT, "self.residuals[key] = self.residuals.get(key, 0) + corrected - self.compressor.decompress(packet)"),
)
changed(
    "error_feedback",
    "keeps it elsewhere",
    "no residual under the key",
    ("self.residuals[key]", "self.residuals[(key, 1)]"),
    ("if key in", "if (key, 1) in"),
)
changed(
    "error_feedback",
    "compresses twice",
    "compresses twice",
    (KEPT, KEPT.replace("decompress(packet)", "decompress(self.compressor.compress(corrected))")),
)
changed(
    "error_feedback",
    "unpacks the residual too",
    "decompress adds the residual",
    (
        "return self.compressor.decompress(packet)",
        "return self.compressor.decompress(packet) + [*self.residuals.values()][-1]",
    ),
)

# ---- mean_of_packets

RETURN = "return sum(compressor.decompress(each) for each in packets) / num_ranks"
GATHER = "dist.all_gather(of_ranks, part, group=group)"
changed(
    "mean_of_packets",
    "all_reduce of the parts",
    "added entry by entry",
    (
        RETURN,
        """reduced = []
    for part in packet.parts[1:]:
        reduced.append(part.clone())
        dist.all_reduce(reduced[-1], group=group)
    return compressor.decompress(replace(packet, parts=(packet.parts[0], *reduced))) / num_ranks""",
    ),
)
changed("mean_of_packets", "a sum", "sum instead of mean", (RETURN, RETURN.replace(" / num_ranks", "")))
changed("mean_of_packets", "own packet", "only my packet", (RETURN, "return compressor.decompress(packet)"))
changed(
    "mean_of_packets",
    "unpacks first",
    "more than packets travels",
    (
        "    num_ranks = dist.get_world_size(group)\n",
        """    num_ranks = dist.get_world_size(group)
    whole = compressor.decompress(packet)
    of_ranks = [torch.empty_like(whole) for _ in range(num_ranks)]
    dist.all_gather(of_ranks, whole, group=group)
    return sum(of_ranks) / num_ranks
""",
    ),
)
changed("mean_of_packets", "the whole world", "all ranks of the world", (GATHER, "dist.all_gather(of_ranks, part)"))
changed(
    "mean_of_packets",
    "divides by the senders",
    "divided by those that sent the entry",
    (
        RETURN,
        "back = [compressor.decompress(each) for each in packets]\n    return sum(back) / sum((b != 0) * 1 for b "
        "in back).clamp(min=1)",
    ),
)
changed("mean_of_packets", "twice", "divided twice", (RETURN, RETURN + " / num_ranks"))
LISTED = "[torch.empty_like(part) for _ in range(num_ranks)]"
changed(
    "mean_of_packets",
    "one tensor N times",
    "one buffer for all ranks",
    (LISTED, "[torch.empty_like(part)] * num_ranks"),
)
changed(
    "mean_of_packets",
    "all_reduce of what was unpacked",
    "a whole gradient travels",
    (
        RETURN,
        "whole = compressor.decompress(packet)\n    dist.all_reduce(whole, group=group)\n    return whole / num_ranks",
    ),
)
changed(
    "mean_of_packets",
    "values alone",
    "other ranks' values in this rank's places",
    (
        RETURN,
        "mine = [replace(packet, parts=(packet.parts[0], each.parts[1])) for each in packets]\n    "
        + RETURN.replace("in packets", "in mine"),
    ),
)

# ---- compression_hook

PACKET = "packet = feedback.compress(bucket.buffer() / num_ranks, key)"
KEY = "key = (bucket.index(), bucket.buffer().numel())"
THEN = "return work.get_future().then(lambda _: feedback.decompress(packet))"
ADD = "return sum(feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered, strict=True))"
changed("compression_hook", "does not divide", "sum instead of mean", (" / num_ranks, key)", ", key)"))
changed(
    "compression_hook",
    "divides afterwards",
    "divided after compressing",
    (" / num_ranks, key)", ", key)"),
    ("feedback.decompress(packet))", "feedback.decompress(packet) / num_ranks)"),
    (ADD, ADD + " / num_ranks"),
)
changed(
    "compression_hook",
    "divides before and after",
    "divided twice",
    ("feedback.decompress(packet))", "feedback.decompress(packet) / num_ranks)"),
    (ADD, ADD + " / num_ranks"),
)
changed(
    "compression_hook",
    "the bucket's number alone",
    "a residual of a bucket that is no more",
    (KEY, "key = bucket.index()"),
)
changed("compression_hook", "one key", "one key for several buckets", (KEY, "key = bucket.buffer().numel() // 1000"))
changed(
    "compression_hook",
    "the address of the buffer",
    "another key in every step",
    (KEY, "key = state.sent_bytes + bucket.index()"),
)
changed(
    "compression_hook",
    "no memory",
    "the memory is not used",
    (PACKET, "packet = feedback.compressor.compress(bucket.buffer() / num_ranks)"),
)
changed(
    "compression_hook",
    "returns the tensor",
    "no future",
    (THEN, "work.wait()\n        return feedback.decompress(packet)"),
    (
        "return torch.futures.collect_all([work.get_future() for work in works]).then(add_up)",
        "[work.wait() for work in works]\n    return add_up(None)",
    ),
)
changed(
    "compression_hook",
    "waits for all works",
    "waits inside the hook",
    (
        "    return torch.futures.collect_all(",
        "    [work.wait() for work in works]\n    return torch.futures.collect_all(",
    ),
)
changed(
    "compression_hook",
    "blocking calls",
    "waits inside the hook",
    (
        THEN,
        "work.wait()\n        done = Future()\n        done.set_result(feedback.decompress(packet))\n        "
        "return done",
    ),
)
COLLECTED = "return torch.futures.collect_all([work.get_future() for work in works]).then(add_up)"
changed(
    "compression_hook",
    "waits for its own future",
    "waits inside the hook",
    (THEN, THEN.replace("return", "mean =") + "\n        mean.wait()\n        return mean"),
    (COLLECTED, COLLECTED.replace("return", "mean =") + "\n    mean.wait()\n    return mean"),
)
changed(
    "compression_hook",
    "waits for futures of gathered parts",
    "waits inside the hook",
    (COLLECTED, "for work in works:\n        work.get_future().wait()\n    " + COLLECTED),
)
changed(
    "compression_hook",
    "waits for a future that a callback completes",
    "waits inside the hook",
    (
        THEN,
        """mean = Future()
        work.get_future().add_done_callback(lambda _: mean.set_result(feedback.decompress(packet)))
        mean.wait()
        return mean""",
    ),
)
changed(
    "compression_hook",
    "always gathers",
    "gathers what can be added",
    ("if feedback.compressor.addable:", "if False:"),
    (ADD, "if feedback.compressor.addable:\n            return sum(g for g in gathered[0])\n        " + ADD),
)
changed(
    "compression_hook", "always adds", "added what cannot be added", ("if feedback.compressor.addable:", "if True:")
)
changed(
    "compression_hook",
    "adds every part",
    "the other parts are added too",
    (
        "        work = dist.all_reduce(packet",
        "        for part in packet.parts[1:]:\n            dist.all_reduce(part, group=state.group)\n        "
        "work = dist.all_reduce(packet",
    ),
)
changed("compression_hook", "its own packet", "only my own packet", (ADD, "return feedback.decompress(packet)"))
changed(
    "compression_hook",
    "divides the buffer in place",
    "the buffer was changed",
    ("bucket.buffer() / num_ranks, key", "bucket.buffer().div_(num_ranks), key"),
)
changed("compression_hook", "does not count", "bytes not counted", ("    state.sent_bytes += wire_bytes(packet)\n", ""))
changed(
    "compression_hook",
    "all-reduces what was unpacked",
    "added what cannot be added",
    (
        "    if feedback.compressor.addable:\n",
        """    if not feedback.compressor.addable:
        whole = feedback.decompress(packet)
        return dist.all_reduce(whole, async_op=True).get_future().then(lambda _: whole)
    if feedback.compressor.addable:
""",
    ),
)
GATHERED_PARTS = "[torch.empty_like(part) for _ in range(num_ranks)]"
changed(
    "compression_hook",
    "one tensor N times",
    "one buffer for all ranks",
    (GATHERED_PARTS, "[torch.empty_like(part)] * num_ranks"),
)
changed(
    "compression_hook",
    "all-reduces what was unpacked of packets that may be added",
    "more than packets travels",
    (
        "        work = dist.all_reduce(packet.parts[0]",
        """        whole = feedback.decompress(packet)
        work = dist.all_reduce(whole, group=state.group, async_op=True)
        return work.get_future().then(lambda _: whole)
        work = dist.all_reduce(packet.parts[0]""",
    ),
)
changed(
    "compression_hook",
    "the whole world",
    "all ranks of the world",
    ("group=state.group", "group=None"),
    ("get_world_size(state.group)", "get_world_size()"),
)

# ---- power_sgd

GATHERED_SUM = """    rows = [torch.empty_like(joined) for _ in range(dist.get_world_size(group))]
    dist.all_gather(rows, joined, group=group)
    joined = sum(rows)
"""
JOINED = "joined = torch.cat([tensor.flatten() for tensor in tensors])"
P = "averaged = self.average([matrix @ q for matrix, q in zip(matrices, self.qs, strict=True)])"
ORTHONORMAL = "ps = [torch.linalg.qr(p)[0] for p in averaged]"
Q = "self.qs = self.average([matrix.T @ p for matrix, p in zip(matrices, ps, strict=True)])"
RESHAPED = "matrices = [gradient.reshape(len(gradient), -1) for gradient in gradients]"
changed(
    "power_sgd",
    "a reduction for each tensor",
    "one all-reduce for each tensor",
    (JOINED, "for tensor in tensors:\n        dist.all_reduce(tensor, group=group)\n    " + JOINED),
    ("    dist.all_reduce(joined, group=group)\n", ""),
)
changed("power_sgd", "the sum of all", "sum instead of mean", ("(joined / dist.get_world_size(group))", "joined"))
changed("power_sgd", "the world's size", "divided by the whole world", ("get_world_size(group)", "get_world_size()"))
changed("power_sgd", "the world takes part", "all ranks of the world", ("(joined, group=group)", "(joined)"))
changed(
    "power_sgd",
    "pieces from the tensors",
    "only this rank's tensors",
    ("[mean.view_as(tensor) for", "[tensor for"),
)
changed(
    "power_sgd",
    "pieces of one size",
    "no list of means",
    (".split([tensor.numel() for tensor in tensors])", ".split(tensors[0].numel())"),
    ("zip(means, tensors, strict=True)]", "zip(means, tensors) if mean.numel() == tensor.numel()]"),
)
changed("power_sgd", "flat pieces", "shape lost", ("mean.view_as(tensor)", "mean"))
changed("power_sgd", "gathers", "no all-reduce", ("    dist.all_reduce(joined, group=group)\n", GATHERED_SUM))
changed(
    "power_sgd",
    "joined as they are",
    "joined with their shapes",
    ("torch.cat([tensor.flatten() for tensor in tensors])", "torch.cat(tensors)"),
)
changed("power_sgd", "a Q in float32", "a Q of another dtype", (".to(gradients[0])", ""))
changed("power_sgd", "Q and R of qr", "Q and R", ("torch.linalg.qr(p)[0]", "torch.linalg.qr(p)"))
changed("power_sgd", "P times Q", "no transpose", ("p @ q.T", "p @ q"))
changed(
    "power_sgd",
    "one packet",
    "no packets",
    (
        "parts = zip(ps, self.qs, strict=True)\n",
        "parts = zip(ps, self.qs, strict=True)\n        return Packet((ps, self.qs), None, None)\n",
    ),
)
changed(
    "power_sgd",
    "one gradient",
    "a list is no gradient",
    (RESHAPED, RESHAPED.replace("in gradients]", "in [gradients]]")),
)
changed(
    "power_sgd",
    "an average in place",
    "P is not averaged",
    (P, P.replace("self.average(", "list(") + "\n        self.average(averaged)"),
)
changed(
    "power_sgd",
    "P of this rank",
    "P is not averaged",
    (P, "averaged = [matrix @ q for matrix, q in zip(matrices, self.qs, strict=True)]"),
)
changed("power_sgd", "Q of this rank", "Q is not averaged", (Q, Q.replace("self.average(", "list(")))
changed("power_sgd", "not made orthonormal", "P is not orthonormal", (ORTHONORMAL, "ps = averaged"))
changed(
    "power_sgd",
    "orthonormal before the mean",
    "P is not orthonormal",
    (P, P.replace("matrix @ q", "torch.linalg.qr(matrix @ q)[0]")),
    (ORTHONORMAL, "ps = averaged"),
)
changed(
    "power_sgd",
    "a new Q each time",
    "begins anew in every call",
    ("        if self.qs is None:\n", "        if True:\n            self.seed += 1\n"),
)
changed(
    "power_sgd",
    "sends the product",
    "not two thin matrices",
    ("[Packet(pair,", "[Packet((pair[0] @ pair[1].T,),"),
    ("        p, q = packet.parts\n        return (p @ q.T)", "        return packet.parts[0]"),
)
changed("power_sgd", "gradients as they come", "a gradient is no matrix", (RESHAPED, "matrices = gradients"))
changed(
    "power_sgd",
    "one Q for all",
    "no Q for each matrix",
    ("self.qs = [torch.randn(size, generator=generator)", "self.qs = [torch.randn(sizes[0], generator=generator)"),
)
changed(
    "power_sgd",
    "two columns for a bias",
    "more columns than the matrix has",
    ("min(self.rank, *matrix.shape)", "self.rank"),
    (ORTHONORMAL, "ps = [torch.linalg.qr(p, mode='complete')[0][:, : self.rank] for p in averaged]"),
)
changed(
    "power_sgd",
    "averages the matrices",
    "the whole matrix is averaged",
    (
        P,
        "matrices = self.average(matrices)\n        averaged = [m @ q for m, q in zip(matrices, self.qs, strict=True)]",
    ),
    (Q, Q.replace("self.average(", "list(")),
)
changed(
    "power_sgd",
    "one average after the other",
    "one average for each matrix",
    (P, "averaged = [self.average([matrix @ q])[0] for matrix, q in zip(matrices, self.qs, strict=True)]"),
    (Q, "self.qs = [self.average([matrix.T @ p])[0] for matrix, p in zip(matrices, ps, strict=True)]"),
)
changed(
    "power_sgd",
    "a tensor to average",
    "average of one tensor",
    (P, "averaged = [self.average(matrix @ q) for matrix, q in zip(matrices, self.qs, strict=True)]"),
)
changed(
    "power_sgd",
    "not through average",
    "average is not called",
    (P, P.replace("self.average", "average_together")),
    (Q, Q.replace("self.average", "average_together")),
)

# ---- where_it_pays

REDUCE = "return 2 * (world_size - 1) * (latency_s + num_bytes / world_size / bandwidth_Bps)"
GATHERED = "return (world_size - 1) * (latency_s + packet_bytes / bandwidth_Bps)"
SAVED = "saved = 2 * (world_size - 1) / world_size * num_bytes - (world_size - 1) * packet_bytes"
changed("where_it_pays", "once round", "one half of the ring", (REDUCE, REDUCE.replace("2 * ", "")))
changed(
    "where_it_pays", "whole tensors", "the whole tensor in each step", (REDUCE, REDUCE.replace(" / world_size /", " /"))
)
changed(
    "where_it_pays",
    "one latency",
    "latency paid once",
    (GATHERED, "return latency_s + (world_size - 1) * packet_bytes / bandwidth_Bps"),
)
changed(
    "where_it_pays",
    "a packet in pieces",
    "a packet cut in N",
    (GATHERED, GATHERED.replace("packet_bytes /", "packet_bytes / world_size /")),
)
changed(
    "where_it_pays", "one packet", "the gather does not grow", (GATHERED, GATHERED.replace("(world_size - 1) * ", ""))
)
changed("where_it_pays", "sizes of packets", "bytes saved on paper", (SAVED, "saved = num_bytes - packet_bytes"))
changed(
    "where_it_pays",
    "the tensor once",
    "the tensor passes once",
    (REDUCE, "return 2 * (world_size - 1) * latency_s + num_bytes / bandwidth_Bps"),
)
changed(
    "where_it_pays",
    "N packets",
    "one's own packet is sent to oneself",
    (GATHERED, GATHERED.replace("(world_size - 1)", "world_size")),
)
changed(
    "where_it_pays",
    "the packet reduced",
    "packets as if they were reduced",
    (SAVED, "saved = 2 * (world_size - 1) / world_size * (num_bytes - packet_bytes)"),
)
changed(
    "where_it_pays",
    "seconds per byte",
    "upside down",
    ("    if saved <= 0:\n        return 0.0\n", ""),
    ("saved / compress_s if compress_s else math.inf", "compress_s / saved"),
)
changed(
    "where_it_pays",
    "free is always worth it",
    "nothing saved for nothing",
    ("if saved <= 0:", "if saved <= 0 < compress_s:"),
)
changed("where_it_pays", "below zero", "a negative bandwidth", ("if saved <= 0:", "if False:"))
changed("where_it_pays", "divides by zero", "divided by nothing", (" if compress_s else math.inf", ""))
changed("where_it_pays", "prints", "returns nothing", (GATHERED, GATHERED.replace("return ", "print(") + ")"))

# ---- autocast

KWARGS = "**{name: cast(value) for name, value in kwargs.items()}"
FLOAT = "isinstance(value, Tensor) and value.is_floating_point()"
changed("autocast", "casts nothing", "products in float32", ("self.dtype if function in IN_16_BITS else", ""))
changed(
    "autocast",
    "all in 16 bits",
    "sums in 16 bits",
    ("torch.float32 if function in IN_32_BITS else None", "self.dtype if function in IN_32_BITS else None"),
)
changed("autocast", "named ones stay", "named arguments are left out", (KWARGS, "**kwargs"))
changed("autocast", "every function", "everything is cast", ("else None\n", "else self.dtype\n"))
changed("autocast", "labels too", "labels are cast", (FLOAT, "isinstance(value, Tensor)"))
changed(
    "autocast",
    "the first argument only",
    "not every argument is cast",
    ("*map(cast, args)", "cast(args[0]), *args[1:]"),
)
changed("autocast", "no return", "nothing comes back", ("return function(*map", "function(*map"))
changed("autocast", "detached", "no gradient", ("value.to(wanted)", "value.detach().to(wanted)"))
changed("autocast", "kwargs as they are", "kwargs may be None", ("        kwargs = kwargs or {}\n", ""))
changed(
    "autocast",
    "always bfloat16",
    "the other 16 bits",
    ("self.dtype if function in IN_16_BITS", "torch.bfloat16 if function in IN_16_BITS"),
)

# ---- loss_scaling

FINITE = "all(bool(gradient.isfinite().all()) for gradient in gradients)"
changed(
    "loss_scaling", "the loss as it is", "the loss is not scaled", ("return loss * self.scale", "return loss * 1.0")
)
changed(
    "loss_scaling",
    "isinf",
    "not a number goes unnoticed",
    (FINITE, "not any(bool(g.isinf().any()) for g in gradients)"),
)
changed(
    "loss_scaling", "isnan", "infinity goes unnoticed", (FINITE, "not any(bool(g.isnan().any()) for g in gradients)")
)
changed(
    "loss_scaling",
    "the first group",
    "only the first parameter is looked at",
    (FINITE, FINITE.replace("in gradients", "in gradients[:1]")),
)
changed("loss_scaling", "does not divide", "gradients are not unscaled", ("scaled /= self.scale", "pass"))
changed("loss_scaling", "divides twice", "unscaled twice", ("scaled /= self.scale", "scaled /= self.scale**2"))
changed("loss_scaling", "never down", "the scale is not halved", ("            self.scale /= 2\n", ""))
changed("loss_scaling", "never up", "the scale never grows", ("            self.scale *= 2\n", ""))
changed(
    "loss_scaling", "up each time", "the scale grows too early", ("self.good_steps == self.growth_interval", "True")
)
changed(
    "loss_scaling",
    "does not begin anew",
    "good steps are counted across a bad one",
    ("            self.scale /= 2\n            self.good_steps = 0\n", "            self.scale /= 2\n"),
)
changed(
    "loss_scaling",
    "says nothing",
    "does not say it",
    ("            self.good_steps = 0\n        return True\n", "            self.good_steps = 0\n"),
    ("            return False\n", "            return None\n"),
)
changed(
    "loss_scaling",
    "every parameter has a gradient",
    "a parameter without a gradient",
    (" if each.grad is not None", ""),
)
changed(
    "loss_scaling",
    "divides by the next scale",
    "unscaled with the next scale",
    ("scaled /= self.scale", "scaled /= self.scale * (2 if self.good_steps + 1 == self.growth_interval else 1)"),
)
changed(
    "loss_scaling",
    "divides the first group",
    "only the first group is unscaled",
    ("for scaled in gradients", "for scaled in gradients[:1]"),
)

# ---- prefetching_loader

PUT = 'ready.put(("batch", batch))'
LAST = "        if not stop.is_set():\n            ready.put(last)\n"
GET = "            kind, value = ready.get()\n"
changed(
    "prefetching_loader",
    "no end",
    "hangs at the end",
    (LAST, '        if last[0] == "error":\n            ready.put(last)\n'),
)
changed(
    "prefetching_loader",
    "the error stays in the thread",
    "the error is swallowed",
    ('last = ("error", trouble)', "pass"),
)
changed(
    "prefetching_loader",
    "the thread dies",
    "hangs at the error",
    (
        '        except Exception as trouble:\n            last = ("error", trouble)\n',
        "        except ZeroDivisionError:\n            pass\n",
    ),
)
changed(
    "prefetching_loader",
    "yields the end",
    "the end is a batch",
    (
        '            if kind == "end":\n                return\n            yield value\n',
        '            yield value\n            if kind == "end":\n                return\n',
    ),
)
changed(
    "prefetching_loader",
    "no thread",
    "nothing is fetched ahead",
    ("    thread.start()\n", "    return (yield from batches)\n"),
)
changed("prefetching_loader", "an endless queue", "too far ahead", ("queue.Queue(maxsize=depth)", "queue.Queue()"))
changed(
    "prefetching_loader",
    "nothing in finally",
    "the thread stays",
    (
        "        stop.set()\n        while not ready.empty():\n            ready.get()\n        thread.join()\n",
        "        pass\n",
    ),
)
changed(
    "prefetching_loader",
    "joins a thread that waits",
    "the thread stays",
    ("        while not ready.empty():\n            ready.get()\n", ""),
)
changed(
    "prefetching_loader",
    "the last one is lost",
    "not all batches",
    (
        PUT,
        "pending.append(batch)\n                if len(pending) > 1:\n"
        '                    ready.put(("batch", pending.pop(0)))',
    ),
    ("        try:\n            for batch", "        pending = []\n        try:\n            for batch"),
)

# ---- true_table

GAIN = "return min(load_s, compute_s) / (load_s + compute_s)"
SPEEDUP = "return 1 / (1 - product_share + product_share / factor)"
VERDICT = 'verdict = "less" if row.value < low else "more" if row.value > high else "holds"'
changed("true_table", "load over all", "the share of loading", (GAIN, "return load_s / (load_s + compute_s)"))
changed("true_table", "over compute", "gain over compute", (GAIN, "return min(load_s, compute_s) / compute_s"))
changed(
    "true_table",
    "how many times",
    "times as fast, not the share",
    (GAIN, "return (load_s + compute_s) / max(load_s, compute_s)"),
)
changed(
    "true_table",
    "products alone",
    "what is not a product is forgotten",
    (SPEEDUP, "return factor / product_share if product_share else 1.0"),
)
changed(
    "true_table",
    "a mean of speeds",
    "speed-ups are averaged",
    (SPEEDUP, "return 1 - product_share + product_share * factor"),
)
changed(
    "true_table",
    "the time left",
    "the time, not the speed",
    (SPEEDUP, "return 1 - product_share + product_share / factor"),
)
changed(
    "true_table",
    "open ends",
    "the ends do not belong",
    (VERDICT, VERDICT.replace("< low", "<= low").replace("> high", ">= high")),
)
changed(
    "true_table",
    "swapped",
    "less and more the wrong way round",
    (VERDICT, VERDICT.replace("< low", "> high", 1).replace('> high else "holds"', '< low else "holds"')),
)
changed(
    "true_table",
    "claims as they come",
    "claims without rows are left out",
    ('    table = {claim: {"holds": [], "less": [], "more": []} for claim in promised}\n', "    table = {}\n"),
    (
        "        table[row.claim][verdict]",
        '        table.setdefault(row.claim, {"holds": [], "less": [], "more": []})[verdict]',
    ),
)
changed(
    "true_table",
    "lists as they come",
    "empty lists are left out",
    ('{"holds": [], "less": [], "more": []} for claim', "{} for claim"),
    ("[verdict].append", ".setdefault(verdict, []).append"),
)
changed(
    "true_table",
    "over the longer",
    "the shorter over the longer",
    (GAIN, "return min(load_s, compute_s) / max(load_s, compute_s)"),
)
changed(
    "true_table",
    "times f",
    "products become slower",
    (SPEEDUP, "return 1 / (1 - product_share + product_share * factor)"),
)
changed(
    "true_table",
    "one dict for all claims",
    "one list for all",
    (
        '{claim: {"holds": [], "less": [], "more": []} for claim in promised}',
        'dict.fromkeys(promised, {"holds": [], "less": [], "more": []})',
    ),
)
changed("true_table", "rows for places", "rows instead of places", (".append(row.where)", ".append(row)"))
changed(
    "true_table",
    "sorted rows",
    "another order",
    ("for row in rows:", "for row in sorted(rows, key=lambda row: row.value):"),
)
