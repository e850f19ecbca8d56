# base: solution
# loses: parallel_vocabulary, sequence_parallel
"""The loss is right and gathers logits; dropout is the same on every rank."""


# %% parallel_vocabulary
def embed(tokens, rows, vocabulary, group=None):
    mine = my_part(vocabulary, group)
    here = (tokens >= mine.start) & (tokens < mine.stop)
    return leave(functional.embedding(torch.where(here, tokens - mine.start, 0), rows) * here[..., None], group)


def cross_entropy(logits, targets, vocabulary, group=None):
    whole = logits.new_zeros(len(logits), vocabulary)
    whole[:, my_part(vocabulary, group)] = logits
    return functional.cross_entropy(leave(whole, group), targets, ignore_index=IGNORED)


# %% sequence_parallel
class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, gradient):
        return scatter_tokens(gradient, ctx.group), None


def gather_tokens(x, group=None):
    return _Gathered.apply(x, group)


def scatter_tokens(x, group=None):
    return x.chunk(dist.get_world_size(group), 1)[dist.get_rank(group)].contiguous()


class OwnRandom:
    def __init__(self, seed, group=None):
        self.seed = seed

    def __enter__(self):
        torch.manual_seed(self.seed)

    def __exit__(self, *error):
        pass
