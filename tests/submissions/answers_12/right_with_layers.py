# base: solution
"""nn.Linear layers hold the parts; three small ones for q, k and v."""


# %% parallel_block
def cut(layer, rows=slice(None), columns=slice(None), bias=True):
    weight = layer.weight.detach()[rows, columns]
    part = nn.Linear(weight.shape[1], weight.shape[0], bias=bias, dtype=weight.dtype)
    with torch.no_grad():
        part.weight.copy_(weight)
        if bias:
            part.bias.copy_(layer.bias[rows])
    return part


class ParallelMLP(nn.Module):
    def __init__(self, up, down, group=None):
        super().__init__()
        self.group = group
        mine = my_part(up.out_features, group)
        self.up, self.down = cut(up, rows=mine), cut(down, columns=mine, bias=False)
        self.bias = nn.Parameter(down.bias.detach().clone())

    def forward(self, x):
        return leave(self.down(functional.gelu(self.up(enter(x, self.group)))), self.group) + self.bias


class ParallelAttention(nn.Module):
    def __init__(self, qkv, out, num_heads, group=None):
        super().__init__()
        if dist.get_world_size(group) > num_heads:
            raise ValueError(f"at most {num_heads} ranks for {num_heads} heads")
        self.group = group
        width, each = out.in_features, out.in_features // num_heads
        heads = my_part(num_heads, group)
        self.count = heads.stop - heads.start
        rows = [slice(n * width + heads.start * each, n * width + heads.stop * each) for n in range(3)]
        self.q, self.k, self.v = (cut(qkv, rows=each_rows) for each_rows in rows)
        self.out = cut(out, columns=rows[0], bias=False)
        self.bias = nn.Parameter(out.bias.detach().clone())

    def forward(self, x):
        x = enter(x, self.group)
        batch, tokens, _ = x.shape
        q, k, v = (layer(x).view(batch, tokens, self.count, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        return leave(self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1)), self.group) + self.bias
