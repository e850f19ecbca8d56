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


# %% one_bit
class Sign:
    addable = False

    def compress(self, gradient):
        return Packet(
            (pack_bits((gradient < 0).reshape(-1)), gradient.abs().float().mean().unsqueeze(0)),
            gradient.shape,
            gradient.dtype,
        )

    def decompress(self, packet):
        bits, mean = packet.parts
        plus = torch.full((packet.shape.numel(),), mean.item(), dtype=packet.dtype)
        return torch.where(unpack_bits(bits, plus.numel()), -plus, plus).reshape(packet.shape)


# %% few_entries
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


# %% mean_of_packets
def mean_of_packets(compressor, packet, group=None):
    ranks = dist.get_process_group_ranks(group) if group is not None else range(dist.get_world_size())
    table = []
    for part in packet.parts:
        joined = part.new_empty((len(ranks), *part.shape))
        dist.all_gather(list(joined), part, group=group)
        table.append(joined)
    total = torch.zeros(packet.shape, dtype=packet.dtype)
    for number in range(len(ranks)):
        total += compressor.decompress(Packet(tuple(part[number] for part in table), packet.shape, packet.dtype))
    return total / len(ranks)


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


# %% power_sgd
def average_together(tensors, group=None):
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    means = [torch.empty_like(tensor) for tensor in tensors]
    joined = parameters_to_vector(tensors) / dist.get_world_size(group)
    dist.all_reduce(joined, group=group, async_op=True).wait()
    vector_to_parameters(joined, means)
    return means


class PowerSGD:
    def __init__(self, rank=2, average=lambda tensors: tensors, seed=0):
        self.rank, self.average, self.generator, self.qs = rank, average, torch.Generator().manual_seed(seed), {}

    def compress(self, gradients):
        matrices = [gradient.reshape(gradient.shape[0], gradient[0].numel()) for gradient in gradients]
        for place, matrix in enumerate(matrices):
            if place not in self.qs:
                size = (matrix.shape[1], min(self.rank, matrix.shape[0], matrix.shape[1]))
                self.qs[place] = torch.rand(size, generator=self.generator, dtype=torch.float64).to(matrix.dtype)
        ps = self.average([matrix.mm(self.qs[place]) for place, matrix in enumerate(matrices)])
        for p in ps:
            for column in range(p.shape[1]):  # Gram and Schmidt, twice, for the digits
                for _ in range(2):
                    for before in range(column):
                        p[:, column] -= (p[:, before] @ p[:, column]) * p[:, before]
                    p[:, column] /= p[:, column].norm()
        qs = self.average([matrix.t().mm(p) for matrix, p in zip(matrices, ps, strict=True)])
        self.qs = dict(enumerate(qs))
        return tuple(
            Packet((ps[place], qs[place]), gradient.shape, gradient.dtype) for place, gradient in enumerate(gradients)
        )

    def decompress(self, packet):
        return torch.einsum("nr,mr->nm", *packet.parts).reshape(packet.shape)


# %% where_it_pays
def all_reduce_seconds(num_bytes, world_size, latency_s, bandwidth_Bps):
    return 2 * all_gather_seconds(num_bytes / world_size, world_size, latency_s, bandwidth_Bps)


def all_gather_seconds(packet_bytes, world_size, latency_s, bandwidth_Bps):
    step = latency_s + packet_bytes / bandwidth_Bps
    return step * (world_size - 1)


def pays_below(num_bytes, packet_bytes, world_size, compress_s):
    spared = all_reduce_seconds(num_bytes, world_size, 0, 1) - all_gather_seconds(packet_bytes, world_size, 0, 1)
    if spared <= 0:
        return 0.0
    return float("inf") if compress_s == 0 else spared / compress_s
