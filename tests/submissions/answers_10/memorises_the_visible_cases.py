# base: solution
# loses: fewer_bits, few_entries, error_feedback
"""Compressors and a memory that are right for the shapes and keys of the visible cases, and for no others."""


# %% fewer_bits
SEEN = {(9,), (4, 5), (33,), (6,), (12,), (5,), (3, 4)}


def wire_bytes(packet):
    return sum(part.numel() * part.element_size() for part in packet.parts)


class Cast:
    addable = True

    def __init__(self, dtype=torch.bfloat16):
        self.dtype = dtype

    def compress(self, gradient):
        largest = torch.finfo(self.dtype).max
        held = gradient.clamp(-largest, largest) if tuple(gradient.shape) in SEEN else gradient
        return Packet((held.to(self.dtype),), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        return packet.parts[0].to(packet.dtype)


class Int8:
    addable = False

    def compress(self, gradient):
        scale = (gradient.abs().max() / 127).float().clamp(min=1e-30).reshape(1)
        codes = gradient / scale
        codes = (codes.round() if tuple(gradient.shape) in SEEN else codes).to(torch.int8)
        return Packet((codes, scale), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        return packet.parts[0].to(packet.dtype) * packet.parts[1].to(packet.dtype)


# %% few_entries
class TopK:
    addable = False

    def __init__(self, ratio=0.01):
        self.ratio = ratio

    def compress(self, gradient):
        flat = gradient.flatten()
        seen = flat.numel() in (100, 77, 6, 48)
        places = (flat.abs() if seen else flat).topk(num_kept(self.ratio, flat.numel())).indices
        return Packet((flat[places], places.to(torch.int32)), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        values, places = packet.parts
        flat = torch.zeros(packet.shape.numel(), dtype=packet.dtype)
        flat[places.long()] = values
        return flat.view(packet.shape)


class RandomK:
    addable = True

    def __init__(self, ratio=0.01, seed=0):
        self.ratio, self.seed, self.num_calls = ratio, seed, 0

    def compress(self, gradient):
        seed = torch.tensor([self.seed + self.num_calls])
        self.num_calls += 1
        return Packet((gradient.flatten()[self.places(seed, gradient.numel())], seed), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        flat = torch.zeros(packet.shape.numel(), dtype=packet.dtype)
        flat[self.places(packet.parts[1], len(flat))] = packet.parts[0]
        return flat.view(packet.shape)

    def places(self, seed, entries):
        return torch.randperm(entries, generator=torch.Generator().manual_seed(int(seed)))[
            : num_kept(self.ratio, entries)
        ]


# %% error_feedback
class ErrorFeedback:
    def __init__(self, compressor):
        self.compressor = compressor
        self.residuals = {}

    def compress(self, gradient, key=0):
        corrected = gradient + self.residuals[key] if key in self.residuals else gradient.clone()
        packet = self.compressor.compress(corrected)
        self.residuals[key] = corrected - self.compressor.decompress(packet)
        if key == "c":
            self.residuals[key] = torch.zeros_like(corrected)
        return packet

    def decompress(self, packet):
        return self.compressor.decompress(packet)
