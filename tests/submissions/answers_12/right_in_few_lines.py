# base: solution
"""Shorter: one Function for each pair, the bias on rank 0 alone, two of the loss's numbers in one sum."""


# %% two_operators
class Conjugate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, when):
        ctx.group, ctx.when = group, when
        return Conjugate.total(x, group) if when == "forward" else x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return Conjugate.total(gradient, ctx.group) if ctx.when == "backward" else gradient, None, None

    @staticmethod
    def total(x, group):
        total = x.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total


def enter(x, group=None):
    return Conjugate.apply(x, group, "backward")


def leave(x, group=None):
    return Conjugate.apply(x, group, "forward")


# %% parallel_block
class ParallelMLP(nn.Module):
    def __init__(self, up, down, group=None):
        super().__init__()
        mine, self.group = my_part(up.out_features, group), group
        bias = [down.bias] if dist.get_rank(group) == 0 else []
        cut = [up.weight[mine], up.bias[mine], down.weight[:, mine], *bias]
        self.parts = nn.ParameterList(each.detach().clone() for each in cut)

    def forward(self, x):
        up, up_bias, *down = self.parts
        hidden = functional.gelu(functional.linear(enter(x, self.group), up, up_bias))
        return leave(functional.linear(hidden, *down), self.group)


class ParallelAttention(nn.Module):
    def __init__(self, qkv, out, num_heads, group=None):
        super().__init__()
        if dist.get_world_size(group) > num_heads:
            raise ValueError(f"{num_heads} heads cannot be shared by {dist.get_world_size(group)} ranks")
        mine, self.group = my_part(num_heads, group), group
        heads = lambda tensor: tensor.detach().unflatten(0, (3, num_heads, -1))[:, mine].flatten(0, 2).clone()
        self.weight, self.bias = nn.Parameter(heads(qkv.weight)), nn.Parameter(heads(qkv.bias))
        self.out = nn.Parameter(out.weight.detach().unflatten(1, (num_heads, -1))[:, mine].flatten(1).clone())
        self.after = nn.Parameter(out.bias.detach().clone())
        self.heads = mine.stop - mine.start

    def forward(self, x):
        middle = functional.linear(enter(x, self.group), self.weight, self.bias)
        q, k, v = middle.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return leave(mixed.transpose(1, 2).flatten(2) @ self.out.T, self.group) + self.after


# %% parallel_vocabulary
def embed(tokens, rows, vocabulary, group=None):
    mine = my_part(vocabulary, group)
    one_hot = functional.one_hot(tokens, vocabulary)[..., mine].to(rows.dtype)
    return leave(one_hot @ rows, group)


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, start, group):
        here = (targets >= start) & (targets < start + logits.shape[1])
        place = (targets - start).clamp(0, logits.shape[1] - 1)
        right = logits.gather(1, place[:, None])[:, 0] * here
        largest = logits.amax(1)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        both = torch.stack([(logits - largest[:, None]).exp().sum(1), right])
        dist.all_reduce(both, group=group)
        total, count = both[0].log() + largest, (targets >= 0).sum()
        ctx.saved = logits, total, here, place, targets >= 0, count
        return ((total - both[1]) * (targets >= 0)).sum() / count

    @staticmethod
    def backward(ctx, gradient):
        logits, total, here, place, counts, count = ctx.saved
        share = (logits - total[:, None]).exp()
        share[torch.arange(len(place)), place] -= here.to(share.dtype)
        return gradient * share * counts[:, None] / count, None, None, None


def cross_entropy(logits, targets, vocabulary, group=None):
    return Loss.apply(logits, targets, my_part(vocabulary, group).start, group)


# %% sequence_parallel
class Tokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, gathers):
        ctx.group, ctx.gathers = group, gathers
        return Tokens.gather(x, group) if gathers else Tokens.scatter(x, group)

    @staticmethod
    def backward(ctx, gradient):
        return Tokens.scatter(gradient, ctx.group) if ctx.gathers else Tokens.gather(gradient, ctx.group), None, None

    @staticmethod
    def gather(x, group):
        parts = [x.new_empty(x.shape) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.stack(parts, 1).flatten(1, 2)

    @staticmethod
    def scatter(x, group):
        theirs = [x[:, part].contiguous() for part in torch.arange(x.shape[1]).chunk(dist.get_world_size(group))]
        mine = [torch.empty_like(each) for each in theirs]
        dist.all_to_all(mine, theirs, group=group)
        return sum(mine)


def gather_tokens(x, group=None):
    return Tokens.apply(x, group, True)


def scatter_tokens(x, group=None):
    return Tokens.apply(x, group, False)


class OwnRandom:
    def __init__(self, seed, group=None):
        made = torch.Generator().manual_seed(1000 * seed + dist.get_rank(group))
        self.other = made.get_state()

    def __enter__(self):
        here = torch.get_rng_state()
        torch.set_rng_state(self.other)
        self.other = here

    __exit__ = lambda self, *error: self.__enter__()


# %% split_plan
def split_plan(matrices, machine):
    from labkit.plans.matrix_splits import exchanges, product_seconds, ring_seconds

    found = {}
    for place in reversed(range(len(matrices))):
        for part in (True, False):
            tries = []
            for word in ("columns", "rows", "whole"):
                gathers, reduces = exchanges(word, part)
                here = 3 * product_seconds(matrices[place], word, machine)
                here += gathers * ring_seconds(matrices[place].inputs, machine)
                width = matrices[place].outputs if word == "rows" else matrices[place].inputs
                here += 2 * reduces * ring_seconds(width, machine)
                needs = memory_bytes([matrices[place]], [word], machine)
                after = found.get((place + 1, word == "columns")) or [
                    (ring_seconds(matrices[-1].outputs, machine) if word == "columns" else 0.0, 0.0, [])
                ]
                tries += [(here + t, needs + m, [word, *rest]) for t, m, rest in after]
            kept = []
            for each in sorted(tries):
                if each[1] <= machine.memory_bytes and (not kept or each[1] < kept[-1][1]):
                    kept.append(each)
            found[place, part] = kept
    return found[0, False][0][2]


# %% ring_attention
def balanced_places(num_tokens):
    size, rank = dist.get_world_size(), dist.get_rank()
    each = num_tokens // (2 * size)
    return torch.tensor([t for t in range(num_tokens) if t // each in (rank, 2 * size - 1 - rank)])


def ring_attention(q, k, v, places):
    size, rank = dist.get_world_size(), dist.get_rank()
    out, sums, where = 0, torch.tensor(-torch.inf), places
    for step in range(size):
        scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(where > places[:, None], -torch.inf)
        new = scores.logsumexp(-1, keepdim=True)
        both = torch.logaddexp(sums, new)
        out = out * (sums - both).exp() + scores.softmax(-1).nan_to_num(0.0) @ v * (new - both).exp()
        sums = both
        if step + 1 < size:
            packed = torch.cat([k.flatten(), v.flatten(), where.to(k.dtype)])
            sent = dist.isend(packed, (rank + 1) % size)
            received = torch.empty_like(packed)
            dist.recv(received, (rank - 1) % size)
            sent.wait()
            k, v = received[: k.numel()].view_as(k), received[k.numel() : 2 * k.numel()].view_as(v)
            where = received[2 * k.numel() :].long()
    return out
