# base: solution
# loses: few_entries
"""Every rank draws for itself in random-k."""


# %% few_entries
class TopK:
    addable = False

    def __init__(self, ratio=0.01):
        self.ratio = ratio

    def compress(self, gradient):
        flat = gradient.flatten()
        places = flat.abs().topk(num_kept(self.ratio, flat.numel())).indices
        return Packet((flat[places], places.to(torch.int32)), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        values, places = packet.parts
        flat = torch.zeros(packet.shape.numel(), dtype=packet.dtype)
        flat[places.long()] = values
        return flat.view(packet.shape)


class RandomK:
    addable = True

    def __init__(self, ratio=0.01, seed=0):
        self.ratio = ratio

    def compress(self, gradient):
        seed = torch.randint(2**30, (1,))
        flat = gradient.flatten()
        return Packet((flat[self.places(seed, flat.numel())], seed), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        values, seed = packet.parts
        flat = torch.zeros(packet.shape.numel(), dtype=packet.dtype)
        flat[self.places(seed, flat.numel())] = values
        return flat.view(packet.shape)

    def places(self, seed, count):
        generator = torch.Generator().manual_seed(int(seed))
        return torch.randperm(count, generator=generator)[: num_kept(self.ratio, count)]
