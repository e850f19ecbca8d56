# base: solution
"""Right answers that look otherwise: numpy-like bits, one loop for all parts, a dict of memories, a queue of pairs."""


# %% fewer_bits
def wire_bytes(packet):
    return sum(part.nbytes for part in packet.parts)


class Cast:
    addable = True

    def __init__(self, dtype=torch.bfloat16):
        self.dtype, self.info = dtype, torch.finfo(dtype)

    def compress(self, gradient):
        held = torch.minimum(torch.maximum(gradient, torch.tensor(self.info.min)), torch.tensor(self.info.max))
        return Packet((held.flatten().to(self.dtype),), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        return packet.parts[0].type(packet.dtype).reshape(packet.shape)


class Int8:
    addable = False

    def compress(self, gradient):
        largest = gradient.abs().amax()
        if not largest:
            return Packet(
                (torch.zeros(gradient.shape, dtype=torch.int8), torch.ones(1)), gradient.shape, gradient.dtype
            )
        codes = torch.round(gradient * (127 / largest)).to(torch.int8)
        return Packet((codes, (largest / 127).float().view(1)), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        return torch.mul(*packet.parts).to(packet.dtype).reshape(packet.shape)


# %% few_entries
from itertools import count


class TopK:
    addable = False

    def __init__(self, ratio=0.01):
        self.ratio = ratio

    def compress(self, gradient):
        flat = gradient.reshape(-1)
        places = flat.abs().argsort(descending=True)[: num_kept(self.ratio, len(flat))]
        return Packet((flat.gather(0, places), places.int()), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        values, places = packet.parts
        whole = torch.zeros(packet.shape.numel(), dtype=packet.dtype)
        return whole.scatter(0, places.to(torch.int64), values).reshape(packet.shape)


class RandomK:
    addable = True

    def __init__(self, ratio=0.01, seed=0):
        self.ratio = ratio
        self.seeds = count(seed)

    def draw(self, seed, entries):
        generator = torch.Generator()
        generator.manual_seed(seed)
        return torch.rand(entries, generator=generator).topk(num_kept(self.ratio, entries)).indices

    def compress(self, gradient):
        seed = next(self.seeds)
        kept = gradient.reshape(-1)[self.draw(seed, gradient.numel())]
        return Packet((kept, torch.tensor(seed)), gradient.shape, gradient.dtype)

    def decompress(self, packet):
        whole = torch.zeros(packet.shape.numel(), dtype=packet.dtype)
        whole[self.draw(int(packet.parts[1]), len(whole))] = packet.parts[0]
        return whole.reshape(packet.shape)


# %% error_feedback
class ErrorFeedback:
    def __init__(self, compressor):
        self.compressor = compressor
        self.residuals = {}

    def compress(self, gradient, key=0):
        left = self.residuals.setdefault(key, torch.zeros_like(gradient))
        left += gradient
        packet = self.compressor.compress(left.clone())
        left -= self.decompress(packet)
        return packet

    def decompress(self, packet):
        return self.compressor.decompress(packet)


# %% compression_hook
def compression_hook(state, bucket):
    n = dist.get_world_size(state.group)
    packet = state.feedback.compress(bucket.buffer().div(n), (bucket.buffer().numel(), bucket.index()))
    state.sent_bytes += wire_bytes(packet)
    if state.feedback.compressor.addable:
        head = packet.parts[0].clone()
        future = dist.all_reduce(head, group=state.group, async_op=True).get_future()
        return future.then(lambda _: state.feedback.decompress(replace(packet, parts=(head, *packet.parts[1:]))))
    rows = [[] for _ in range(n)]
    futures = []
    for part in packet.parts:
        copies = [part.new_empty(part.shape) for _ in rows]
        for row, copy in zip(rows, copies, strict=True):
            row.append(copy)
        futures.append(dist.all_gather(copies, part, state.group, async_op=True).get_future())

    def unpack(_):
        total = state.feedback.decompress(replace(packet, parts=tuple(rows[0]))).clone()
        for row in rows[1:]:
            total += state.feedback.decompress(replace(packet, parts=tuple(row)))
        return total

    return torch.futures.collect_all(futures).then(unpack)


# %% compression_plan
from labkit.plans.compressed_steps import packet_bytes


def compression_plan(sizes, num_steps, budget_bytes):
    plan, left = [], budget_bytes
    for step in range(num_steps):
        of_step = left // (num_steps - step)
        pairs = [(most_entries(of_step * size // sum(sizes), 8, size), 8) for size in sizes]
        left -= sum(packet_bytes(*pair, size) for pair, size in zip(pairs, sizes))
        plan.append(pairs)
    return plan


# %% deep_compression
class DeepCompression:
    def __init__(self, ratio=0.01, momentum=0.9, max_norm=1.0, num_ranks=1, warmup=0):
        self.ratio, self.momentum, self.warmup = ratio, momentum, warmup
        self.limit = max_norm / num_ranks**0.5
        self.compressor = TopK(ratio)
        self.of_key = {}

    def compress(self, gradient, key=0):
        flat = gradient.flatten().clone()
        velocity, waiting, calls = self.of_key.setdefault(key, [torch.zeros_like(flat), torch.zeros_like(flat), 0])
        norm = flat.norm()
        if norm > self.limit:
            flat *= self.limit / norm
        velocity.mul_(self.momentum).add_(flat)
        waiting += velocity
        share = self.ratio
        if self.warmup:
            share = max(share, 4.0 ** -(1 + calls // self.warmup))
        places = waiting.abs().topk(num_kept(share, len(flat))).indices
        packet = Packet((waiting[places].clone(), places.int()), gradient.shape, gradient.dtype)
        velocity[places] = waiting[places] = 0
        self.of_key[key][2] += 1
        return packet

    def decompress(self, packet):
        whole = torch.zeros(packet.shape.numel(), dtype=packet.dtype)
        whole[packet.parts[1].long()] = packet.parts[0]
        return whole.reshape(packet.shape)


# %% quantised_all_reduce
def quantised_all_reduce(tensor, group=None):
    n, me = dist.get_world_size(group), dist.get_rank(group)
    flat = tensor.reshape(-1)
    long = -(-len(flat) // n)
    padded = torch.cat([flat, flat.new_zeros(n * long - len(flat))])

    def coded(piece):
        scale = (piece.abs().max() / 127).clamp(min=1e-30).float()
        return torch.cat([(piece / scale).round().to(torch.int8), scale.view(1).view(torch.int8)])

    def back(raw):
        return raw[:-4].to(tensor.dtype) * raw[-4:].clone().view(torch.float32).to(tensor.dtype)

    mine = torch.cat([coded(piece) for piece in padded.split(long)])
    theirs = torch.empty_like(mine)
    dist.all_to_all_single(theirs, mine, group=group)
    mean = sum(back(raw) for raw in theirs.split(long + 4)) / n
    everything = [torch.empty(long + 4, dtype=torch.int8) for _ in range(n)]
    dist.all_gather(everything, coded(mean), group=group)
    return torch.cat([back(raw) for raw in everything])[: len(flat)].reshape(tensor.shape)
