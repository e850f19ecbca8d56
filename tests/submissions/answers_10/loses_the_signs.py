# base: solution
# loses: few_entries
"""Top-k as the post of lesson 00 has it: magnitudes in the right places."""


# %% few_entries
class TopK:
    addable = False

    def __init__(self, ratio=0.01):
        self.ratio = ratio

    def compress(self, gradient):
        values, places = gradient.flatten().abs().topk(num_kept(self.ratio, gradient.numel()))
        return Packet((values, places.to(torch.int32)), gradient.shape, gradient.dtype)

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
