"""Wrong answers to one_bit, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed


BITS = "bits = pack_bits(gradient.flatten() < 0)"
MEAN = "gradient.abs().mean().to(torch.float32)"
changed(
    "a byte each",
    "a byte for each sign",
    (BITS, "bits = (gradient.flatten() < 0).to(torch.uint8)"),
    ("unpack_bits(bits, packet.shape.numel())", "bits"),
)
changed("bits of what is positive", "the signs the wrong way round", ("< 0", "> 0"))
changed("at most zero", "zeros count as negative", ("< 0", "<= 0"))
changed("no magnitude", "magnitude forgotten", (" * magnitude.to(packet.dtype)", ""))
changed("mean of the entries", "mean of the entries", (MEAN, "gradient.mean().to(torch.float32)"))
changed("the largest", "the largest magnitude", (MEAN, MEAN.replace("mean", "max")))
changed("bits not used", "signs lost", ("(1 - 2 * negative)", "(1 - 0 * negative)"))
changed("flat", "shape lost", (".view(packet.shape)", ""))
changed("a mask of rows", "a mask that is not flat", (BITS, "bits = pack_bits(gradient < 0)"))
changed(
    "remembers the number of entries",
    "decompress uses what compress left behind",
    (BITS, "self.entries = gradient.numel()\n        " + BITS),
    ("unpack_bits(bits, packet.shape.numel())", "unpack_bits(bits, self.entries)"),
)
