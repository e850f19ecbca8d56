# base: solution
# loses: parallel_block
"""The second layer's bias is added on every rank, before the sum."""


# %% parallel_block
class ParallelMLP(nn.Module):
    def __init__(self, up, down, group=None):
        super().__init__()
        self.group, mine = group, my_part(up.out_features, group)
        self.up, self.up_bias = nn.Parameter(up.weight.detach()[mine].clone()), nn.Parameter(up.bias.detach()[mine].clone())
        self.down = nn.Parameter(down.weight.detach()[:, mine].clone())
        self.bias = nn.Parameter(down.bias.detach().clone())

    def forward(self, x):
        hidden = functional.gelu(functional.linear(enter(x, self.group), self.up, self.up_bias))
        return leave(functional.linear(hidden, self.down, self.bias), self.group)


class ParallelAttention(nn.Module):
    def __init__(self, qkv, out, num_heads, group=None):
        super().__init__()
        self.group = group

    def forward(self, x):
        return x
