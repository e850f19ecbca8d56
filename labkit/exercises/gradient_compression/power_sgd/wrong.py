"""Wrong answers to power_sgd, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


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
    "a reduction for each tensor",
    "one all-reduce for each tensor",
    (JOINED, "for tensor in tensors:\n        dist.all_reduce(tensor, group=group)\n    " + JOINED),
    ("    dist.all_reduce(joined, group=group)\n", ""),
)
changed("the sum of all", "sum instead of mean", ("(joined / dist.get_world_size(group))", "joined"))
changed("the world's size", "divided by the whole world", ("get_world_size(group)", "get_world_size()"))
changed("the world takes part", "all ranks of the world", ("(joined, group=group)", "(joined)"))
changed(
    "pieces from the tensors",
    "only this rank's tensors",
    ("[mean.view_as(tensor) for", "[tensor for"),
)
changed(
    "pieces of one size",
    "not a list of means",
    (".split([tensor.numel() for tensor in tensors])", ".split(tensors[0].numel())"),
    ("zip(means, tensors, strict=True)]", "zip(means, tensors) if mean.numel() == tensor.numel()]"),
)
changed("flat pieces", "shape lost", ("mean.view_as(tensor)", "mean"))
changed("gathers", "no all-reduce", ("    dist.all_reduce(joined, group=group)\n", GATHERED_SUM))
changed(
    "joined as they are",
    "joined with their shapes",
    ("torch.cat([tensor.flatten() for tensor in tensors])", "torch.cat(tensors)"),
)
changed("a Q in float32", "a Q of another dtype", (".to(gradients[0])", ""))
changed("Q and R of qr", "Q and R", ("torch.linalg.qr(p)[0]", "torch.linalg.qr(p)"))
changed("P times Q", "no transpose", ("p @ q.T", "p @ q"))
changed(
    "one packet",
    "no packets",
    (
        "parts = zip(ps, self.qs, strict=True)\n",
        "parts = zip(ps, self.qs, strict=True)\n        return Packet((ps, self.qs), None, None)\n",
    ),
)
changed(
    "one gradient",
    "a list is no gradient",
    (RESHAPED, RESHAPED.replace("in gradients]", "in [gradients]]")),
)
changed(
    "an average in place",
    "P is not averaged",
    (P, P.replace("self.average(", "list(") + "\n        self.average(averaged)"),
)
changed(
    "P of this rank",
    "P is not averaged",
    (P, "averaged = [matrix @ q for matrix, q in zip(matrices, self.qs, strict=True)]"),
)
changed("Q of this rank", "Q is not averaged", (Q, Q.replace("self.average(", "list(")))
changed("not made orthonormal", "P is not orthonormal", (ORTHONORMAL, "ps = averaged"))
changed(
    "orthonormal before the mean",
    "P is not orthonormal",
    (P, P.replace("matrix @ q", "torch.linalg.qr(matrix @ q)[0]")),
    (ORTHONORMAL, "ps = averaged"),
)
changed(
    "a new Q each time",
    "starts over in every call",
    ("        if self.qs is None:\n", "        if True:\n            self.seed += 1\n"),
)
changed(
    "sends the product",
    "not two thin matrices",
    ("[Packet(pair,", "[Packet((pair[0] @ pair[1].T,),"),
    ("        p, q = packet.parts\n        return (p @ q.T)", "        return packet.parts[0]"),
)
changed("gradients as they come", "a gradient that is not a matrix", (RESHAPED, "matrices = gradients"))
changed(
    "one Q for all",
    "no Q for each matrix",
    ("self.qs = [torch.randn(size, generator=generator)", "self.qs = [torch.randn(sizes[0], generator=generator)"),
)
changed(
    "two columns for a bias",
    "more columns than the matrix has",
    ("min(self.rank, *matrix.shape)", "self.rank"),
    (ORTHONORMAL, "ps = [torch.linalg.qr(p, mode='complete')[0][:, : self.rank] for p in averaged]"),
)
changed(
    "averages the matrices",
    "the whole matrix is averaged",
    (
        P,
        "matrices = self.average(matrices)\n        averaged = [m @ q for m, q in zip(matrices, self.qs, strict=True)]",
    ),
    (Q, Q.replace("self.average(", "list(")),
)
changed(
    "one average after the other",
    "one average for each matrix",
    (P, "averaged = [self.average([matrix @ q])[0] for matrix, q in zip(matrices, self.qs, strict=True)]"),
    (Q, "self.qs = [self.average([matrix.T @ p])[0] for matrix, p in zip(matrices, ps, strict=True)]"),
)
changed(
    "a tensor to average",
    "average of one tensor",
    (P, "averaged = [self.average(matrix @ q) for matrix, q in zip(matrices, self.qs, strict=True)]"),
)
changed(
    "not through average",
    "average is not called",
    (P, P.replace("self.average", "average_together")),
    (Q, Q.replace("self.average", "average_together")),
)
