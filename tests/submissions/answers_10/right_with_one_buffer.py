# base: solution
"""The hook sends a packet's parts joined as bytes, in one all_gather; P's and Q's live in buffers that stay."""


# %% compression_hook
def compression_hook(state, bucket):
    everybody = dist.get_world_size(state.group)
    memory = state.feedback
    packet = memory.compress(bucket.buffer() / everybody, f"bucket {bucket.index()} of {len(bucket.buffer())}")
    state.sent_bytes += wire_bytes(packet)
    if memory.compressor.addable:
        first, *others = packet.parts
        work = dist.all_reduce(first, group=state.group, async_op=True)
        return work.get_future().then(lambda _: memory.decompress(replace(packet, parts=(first, *others))))
    joined = torch.cat([part.contiguous().view(-1).view(torch.uint8) for part in packet.parts])
    received = [torch.empty_like(joined) for _ in range(everybody)]
    work = dist.all_gather(received, joined, group=state.group, async_op=True)

    def add_up(_):
        total = torch.zeros_like(bucket.buffer())
        for raw in received:
            parts, at = [], 0
            for part in packet.parts:
                size = part.numel() * part.element_size()
                parts.append(raw[at : at + size].clone().view(part.dtype).view(part.shape))
                at += size
            total += memory.decompress(replace(packet, parts=tuple(parts)))
        return total

    return work.get_future().then(add_up)


# %% power_sgd
def average_together(tensors, group=None):
    total = sum(tensor.numel() for tensor in tensors)
    buffer, at, views = torch.empty(total, dtype=tensors[0].dtype), 0, []
    for tensor in tensors:
        views.append(buffer[at : at + tensor.numel()].view(tensor.shape))
        views[-1].copy_(tensor)
        at += tensor.numel()
    dist.all_reduce(buffer, group=group)
    buffer /= dist.get_world_size(group)
    return views


class PowerSGD:
    def __init__(self, rank=2, average=lambda tensors: tensors, seed=0):
        self.rank, self.average, self.seed, self.memory = rank, average, seed, []

    def compress(self, gradients):
        if not self.memory:
            for gradient in gradients:
                n, m = len(gradient), gradient.numel() // len(gradient)
                draw = torch.Generator().manual_seed(self.seed + len(self.memory))
                q = torch.empty(m, min(self.rank, n, m), dtype=gradient.dtype).normal_(generator=draw)
                self.memory.append((torch.empty(n, q.shape[1], dtype=q.dtype), q))
        for gradient, (p, q) in zip(gradients, self.memory, strict=True):
            torch.mm(gradient.reshape(len(p), len(q)), q, out=p)
        for mean, (p, _) in zip(self.average([p for p, _ in self.memory]), self.memory, strict=True):
            u, _, v = torch.linalg.svd(mean, full_matrices=False)  # the nearest orthonormal columns
            p.copy_(u @ v)
        for gradient, (p, q) in zip(gradients, self.memory, strict=True):
            torch.mm(gradient.reshape(len(p), len(q)).T, p, out=q)
        for mean, (_, q) in zip(self.average([q for _, q in self.memory]), self.memory, strict=True):
            q.copy_(mean)
        return [Packet(pair, each.shape, each.dtype) for pair, each in zip(self.memory, gradients, strict=True)]

    def decompress(self, packet):
        p, q = packet.parts
        return p.matmul(q.T).reshape(packet.shape)
