"""Wrong answers to fewer_bits, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


BYTES = "return sum(part.numel() * part.element_size() for part in packet.parts)"
CODES = "codes = (gradient / scale).round().clamp(-127, 127).to(torch.int8)"
changed("counts entries", "entries instead of bytes", (BYTES, "return sum(p.numel() for p in packet.parts)"))
changed(
    "the first part",
    "the first part only",
    (BYTES, "return packet.parts[0].numel() * packet.parts[0].element_size()"),
)
changed("the gradient's own bytes", "bytes of the gradient", (BYTES, "return packet.shape.numel() * 4"))
changed("a plain cast", "infinite", ("gradient.clamp(-largest, largest).to", "gradient.to"))
changed("no cast", "nothing is cast", ("gradient.clamp(-largest, largest).to(self.dtype)", "gradient.clone()"))
changed("stays in 16 bits", "dtype lost", ("packet.parts[0].to(packet.dtype).view", "packet.parts[0].view"))
changed(
    "stays flat",
    "shape lost",
    ("scale.to(packet.dtype)).view(packet.shape)", "scale.to(packet.dtype)).flatten()"),
)
changed("cuts off", "cut off instead of rounded", (CODES, CODES.replace(".round()", "")))
changed(
    "a scale of largest over 128",
    "one step too far",
    ("/ 127)", "/ 128)"),
    (".clamp(-127, 127)", ""),
    ("(gradient / scale).round().to(torch.int8)", "(gradient / scale).round().to(torch.int64).to(torch.int8)"),
)
changed("no scale on the way back", "scale forgotten", (" * scale.to(packet.dtype)", ""))
changed(
    "scale zero",
    "zero over zero",
    (".clamp(min=1e-30)", ""),
    ("codes.to(packet.dtype) * scale", "(codes.to(packet.dtype) / scale * scale) * scale"),
)
changed("codes in 16 bits", "too many bytes", ("to(torch.int8)", "to(torch.int16)"))
changed("clamps in place", "gradient changed", ("gradient.clamp(", "gradient.clamp_("))
changed(
    "a tuple for a packet",
    "no packet",
    ("return Packet((codes, scale), gradient.shape, gradient.dtype)", "return codes, scale"),
)
changed(
    "adds a little to the scale",
    "the scale of a small gradient is too large",
    (".clamp(min=1e-30)", ".add(1e-8)"),
)
changed("counts bits", "wrong bytes", (BYTES, BYTES.replace("sum(", "8 * sum(")))
changed("views the gradient flat", "taken for contiguous", ("(gradient / scale)", "(gradient.view(-1) / scale)"))
changed(
    "keeps the scale", "decompress uses what compress left behind",
    ("        codes = (", "        self.scale = scale\n        codes = ("),
    ("scale.to(packet.dtype)", "self.scale.to(packet.dtype)"),
)  # fmt: skip
changed("prints it", "nothing returned", ("return packet.parts[0].to", "packet.parts[0].to"))
changed(
    "the largest entry over 127", "the largest entry, not the largest magnitude", (".abs().max() / 127", ".max() / 127")
)
changed("multiplies by the scale", "codes of another scale", ("(gradient / scale)", "(gradient * scale)"))
changed("another number of levels", "another scale", (".max() / 127)", ".max() / 63)"))
changed("clamps codes at 0", "clamped too early", (".clamp(-127, 127)", ".clamp(0, 127)"))
changed("clamps codes at 64", "clamped too early", (".clamp(-127, 127)", ".clamp(-127, 64)"))
changed("clamps what is cast at 0", "clamped too early", ("clamp(-largest, largest)", "clamp(0, largest)"))
changed("rounds down", "rounded to one side", ("(gradient / scale).round()", "(gradient / scale).floor()"))
changed("rounds up", "rounded to one side", ("(gradient / scale).round()", "(gradient / scale).ceil()"))
changed("the smallest magnitude over 127", "another scale", (".abs().max() / 127", ".abs().min() / 127"))
changed("swaps the ends of the clamp", "codes of another scale", (".clamp(-127, 127)", ".clamp(127, -127)"))
CAST = "gradient.clamp(-largest, largest).to(self.dtype)"
changed("always bfloat16", "the other 16-bit type", (".to(self.dtype),)", ".to(torch.bfloat16),)"))
changed(
    "zero beyond the range",
    "what is beyond the range is lost",
    (CAST, "torch.where(gradient.abs() > largest, 0.0, gradient).to(self.dtype)"),
)
changed("float16's range for both", "clamped too early", ("largest = torch.finfo(self.dtype).max", "largest = 65504.0"))
changed("clamps at the top alone", "infinite", ("clamp(-largest, largest)", "clamp(max=largest)"))
changed(
    "scales down to fit",
    "scaled down to fit",
    ("gradient.clamp(-largest, largest)", "(gradient * min(1.0, largest / max(float(gradient.abs().max()), 1e-30)))"),
)
SCALE = "scale = (gradient.abs().max() / 127).to(torch.float32).clamp(min=1e-30).reshape(1)"
changed(
    "a scale for each row",
    "several scales",
    ("gradient.abs().max() / 127", "gradient.abs().amax(-1, keepdim=True) / 127"),
    (".clamp(min=1e-30).reshape(1)", ".clamp(min=1e-30)"),
)
changed(
    "from the smallest to the largest",
    "several scales",
    (SCALE, "low = gradient.min()\n        scale = ((gradient.max() - low) / 254).clamp(min=1e-30).to(torch.float32)"),
    (CODES, "codes = ((gradient - low) / scale - 127).round().clamp(-127, 127).to(torch.int8)"),
    ("Packet((codes, scale)", "Packet((codes, scale, low.to(torch.float32))"),
    ("codes, scale = packet.parts", "codes, scale, low = packet.parts"),
    ("(codes.to(packet.dtype) * scale.to(packet.dtype))", "((codes + 127.0).to(packet.dtype) * scale + low)"),
    (").view(packet.shape)\n        # END", ").to(packet.dtype).view(packet.shape)\n        # END"),
)
changed(
    "rounds at random",
    "not the nearest code",
    ("(gradient / scale).round()", "(gradient / scale + torch.rand(gradient.shape)).floor()"),
)
changed("the mean over 127", "another scale", ("gradient.abs().max() / 127", "gradient.abs().mean() / 127"))
changed("the scale in the gradient's type", "too many bytes", (".to(torch.float32).clamp", ".clamp"))
changed("the scale as a number", "no packet", ("Packet((codes, scale)", "Packet((codes, float(scale))"))
changed(
    "always float32",
    "dtype lost",
    ("codes.to(packet.dtype) * scale.to(packet.dtype)", "codes.to(torch.float32) * scale"),
)
BOTH = """
def wire_bytes(packet):
    return sum(part.untyped_storage().nbytes() for part in packet.parts)


class Cast:
    addable = True

    def __init__(self, dtype=torch.bfloat16):
        self.dtype = dtype

    def compress(self, gradient):
        most = torch.finfo(self.dtype).max
        cast = torch.nan_to_num(gradient.to(self.dtype), posinf=most, neginf=-most)
        return Packet((cast.flatten(),), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        return packet.parts[0].to(packet.dtype).view(packet.shape)


class Int8:
    addable = False

    def compress(self, gradient):
        scale = (gradient.abs().max() / 127).float().clamp(min=1e-30)
        return Packet(((gradient / scale).round().to(torch.int8), scale), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        codes, scale = packet.parts
        return codes.to(packet.dtype) * scale.to(packet.dtype)
"""
WRONG.right("bytes of storages, infinity put right, a scale without dimensions", BOTH)
changed(
    "counts the gradient's bytes a number",
    "all numbers of one size",
    ("part.numel() * part.element_size()", "part.numel() * packet.dtype.itemsize"),
)
changed(
    "counts the shape in the first part's bytes",
    "bytes of the gradient",
    (BYTES, "return packet.shape.numel() * packet.parts[0].element_size()"),
)
changed("the mean over 32", "another scale", ("gradient.abs().max() / 127", "gradient.abs().mean() / 32"))
