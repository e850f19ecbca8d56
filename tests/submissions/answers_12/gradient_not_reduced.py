# base: solution
# loses: two_operators
"""enter is the identity in both directions; everything else is right and stands on it."""


# %% two_operators
class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        total = x.clone().contiguous()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def enter(x, group=None):
    return x


def leave(x, group=None):
    return _Total.apply(x, group)
