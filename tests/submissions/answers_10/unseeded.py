# base: solution
"""Every rank draws for itself, both in random-k and in PowerSGD."""


# %% power_sgd
def average_together(tensors, group=None):
    joined = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(joined, group=group)
    means = (joined / dist.get_world_size(group)).split([tensor.numel() for tensor in tensors])
    return [mean.view_as(tensor) for mean, tensor in zip(means, tensors, strict=True)]


class PowerSGD:
    def __init__(self, rank=2, average=lambda tensors: tensors, seed=0):
        self.rank, self.average, self.qs = rank, average, None

    def compress(self, gradients):
        matrices = [gradient.reshape(len(gradient), -1) for gradient in gradients]
        if self.qs is None:
            self.qs = [torch.randn(m.shape[1], min(self.rank, *m.shape)).to(m) for m in matrices]
        ps = [torch.linalg.qr(p)[0] for p in self.average([m @ q for m, q in zip(matrices, self.qs, strict=True)])]
        self.qs = self.average([m.T @ p for m, p in zip(matrices, ps, strict=True)])
        parts = zip(ps, self.qs, strict=True)
        return [Packet(pair, each.shape, each.dtype) for pair, each in zip(parts, gradients, strict=True)]

    def decompress(self, packet):
        p, q = packet.parts
        return (p @ q.T).view(packet.shape)
