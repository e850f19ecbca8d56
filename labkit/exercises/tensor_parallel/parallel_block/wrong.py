"""Wrong answers to parallel_block, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

BIAS = "leave(functional.linear(hidden, self.down), self.group) + self.bias"
changed(
    "the layer as it is",
    "bias on every rank",
    (BIAS, "leave(functional.linear(hidden, self.down, self.bias), self.group)"),
)
changed("the bias lost", "no bias", (BIAS, "leave(functional.linear(hidden, self.down), self.group)"))
changed("no leave", "not summed", (BIAS, "functional.linear(hidden, self.down) + self.bias"))
changed(
    "no enter",
    "gradient not reduced",
    ("functional.gelu(functional.linear(enter(x, self.group),", "functional.gelu(functional.linear((x),"),
)
changed(
    "rows of qkv one after another",
    "wrong half of q, k and v",
    (
        "torch.cat([each[mine] for each in qkv.weight.detach().chunk(3)])",
        "qkv.weight.detach()[3 * mine.start : 3 * mine.stop].clone()",
    ),
    (
        "torch.cat([each[mine] for each in qkv.bias.detach().chunk(3)])",
        "qkv.bias.detach()[3 * mine.start : 3 * mine.stop].clone()",
    ),
)
changed(
    "always the first columns",
    "wrong columns of out",
    ("out.weight.detach()[:, mine].clone()", "out.weight.detach()[:, : mine.stop - mine.start].clone()"),
)
changed(
    "plain tensors",
    "a step changes nothing",
    *((f"nn.Parameter({each}.clone())", f"{each}.clone()") for each in (
        "up.weight.detach()[mine]", "up.bias.detach()[mine]", "down.weight.detach()[:, mine]", "down.bias.detach()"
    )),
)  # fmt: skip
changed(
    "a part of the bias each",
    "the bias takes another step",
    (
        "self.bias = nn.Parameter(down.bias.detach().clone())",
        "self.bias = nn.Parameter(down.bias.detach() / dist.get_world_size(group))",
    ),
    (BIAS, "leave(functional.linear(hidden, self.down, self.bias), self.group)"),
)
changed(
    "views",
    "the layers given were changed",
    ("nn.Parameter(down.bias.detach().clone())", "nn.Parameter(down.bias.detach())"),
)
changed(
    "the whole layer too",
    "keeps more than its part",
    ("self.group, mine = group,", "self.whole = up\n        self.group, mine = group,"),
)
changed("no question asked", "no refusal", ("if size > num_heads:", "if False:"))
changed(
    "only what divides",
    "a needless refusal",
    ("if size > num_heads:", "if num_heads % size:"),
)
changed(
    "entered twice",
    "gradient reduced again",
    (
        "functional.gelu(functional.linear(enter(x, self.group),",
        "functional.gelu(functional.linear(enter(enter(x, self.group), self.group),",
    ),
)
changed(
    "without autograd",
    "nothing returned",
    (
        "functional.gelu(functional.linear(enter(x, self.group),",
        "functional.gelu(functional.linear(enter(x.detach(), self.group),",
    ),
)

PART, HEADS = "self.group, mine = group, my_part(up.out_features, group)", "my_part(num_heads, group)"
for name, group, part in (
    ("no group anywhere", "None", "None"), ("added up over all", "None", "group"), ("cut for all", "group", "None")
):  # fmt: skip
    changed(name, "group ignored", (PART, f"self.group, mine = {group}, my_part(up.out_features, {part})"))
changed(
    "attention of all ranks",
    "a needless refusal",
    ("size = dist.get_world_size(group)", "size = dist.get_world_size()"),
)
changed("attention added up over all", "group ignored", ("self.width, heads = group,", "self.width, heads = None,"))
FLOOR = """(lambda count, group: slice(
            dist.get_rank(group) * (count // dist.get_world_size(group)),
            (dist.get_rank(group) + 1) * (count // dist.get_world_size(group)),
        ))"""
CEIL = """(lambda count, group: slice(
            min(count, dist.get_rank(group) * -(-count // dist.get_world_size(group))),
            min(count, (dist.get_rank(group) + 1) * -(-count // dist.get_world_size(group))),
        ))"""
changed("count // N each", "the rest is lost", (PART, PART.replace("my_part", FLOOR)))
changed("the last has the rest", "another cut", (PART, PART.replace("my_part", CEIL)))
changed("entered over all", "group ignored", ("enter(x, self.group), self.up", "enter(x), self.up"))
CAUSAL = "functional.scaled_dot_product_attention(q, k, v, is_causal=True)"
changed("not causal", "later tokens seen", (CAUSAL, CAUSAL.replace(", is_causal=True", "")))
changed(
    "root of the whole width",
    "scores scaled otherwise",
    (CAUSAL, CAUSAL.replace("True", "True, scale=x.shape[-1] ** -0.5")),
)
changed(
    "root of a share of the width",
    "scores scaled otherwise",
    (CAUSAL, CAUSAL.replace("True", "True, scale=(x.shape[-1] / q.shape[1]) ** -0.5")),
)
changed(
    "q, k and v of each head",
    "q, k and v mixed up",
    (
        "(each.unflatten(-1, (-1, self.width)).transpose(1, 2) for each in qkv.chunk(3, dim=-1))",
        "qkv.unflatten(-1, (-1, 3, self.width)).permute(3, 0, 2, 1, 4)",
    ),
)
changed(
    "not transposed back",
    "heads and tokens mixed up",
    ("mixed.transpose(1, 2).flatten(2)", "mixed.reshape(*x.shape[:2], -1)"),
)
changed(
    "enters hidden units",
    "entered too late",
    (
        "functional.gelu(functional.linear(enter(x, self.group), self.up, self.up_bias))",
        "functional.gelu(enter(functional.linear(x, self.up, self.up_bias), self.group))",
    ),
)
GELU = "self.up, self.up_bias))"
changed("no bias up", "no bias in the first layer", (GELU, "self.up))"))
changed(
    "the first bias a buffer",
    "the first bias takes no step",
    ("self.up_bias = nn.Parameter(up.bias.detach()[mine].clone())", "self.up_bias = up.bias.detach()[mine].clone()"),
)
changed(
    "rows of the bias one after another",
    "wrong part of qkv.bias",
    (
        "torch.cat([each[mine] for each in qkv.bias.detach().chunk(3)])",
        "qkv.bias.detach()[3 * mine.start : 3 * mine.stop].clone()",
    ),
)
changed("k for q", "one third for another", ("q, k, v = (each", "k, q, v = (each"))
changed("gelu's tanh form", "another activation", (GELU, 'self.up, self.up_bias), approximate="tanh")'))
changed("no gelu", "another activation", ("functional.gelu(", "("))
BIAS_KEPT = "self.bias = nn.Parameter(down.bias.detach().clone())"
changed(
    "the bias a buffer",
    "the bias takes no step",
    (BIAS_KEPT, 'self.register_buffer("bias", down.bias.detach().clone())'),
)
for name, more in (
    ("the layers in a list", "self.kept = [up, down]"),
    ("copies in a list", "self.kept = [up.weight.detach().clone()]"),
    ("the whole in a buffer", 'self.register_buffer("whole", up.weight.detach().clone())'),
    ("the whole in a function", "self.cut = (lambda whole: lambda: whole)(up.weight)"),
):
    changed(name, "keeps more than its part", (BIAS_KEPT, f"{BIAS_KEPT}\n        {more}"))
changed(
    "a slice of a copy",
    "keeps more than its part",
    ("up.weight.detach()[mine].clone()", "up.weight.detach().clone()[mine]"),
)
changed(
    "the bias entered", "the bias takes another step", (BIAS, BIAS.replace("self.bias", "enter(self.bias, self.group)"))
)
changed(
    "leaves hidden units",
    "left too early",
    (BIAS, "functional.linear(leave(hidden, self.group), self.down) + self.bias"),
)
changed(
    "always the first columns of down",
    "wrong columns of down",
    ("down.weight.detach()[:, mine].clone()", "down.weight.detach()[:, : mine.stop - mine.start].clone()"),
)
changed(
    "its part put into the layer",
    "the layers given were changed",
    (
        "self.up = nn.Parameter(up.weight.detach()[mine].clone())",
        "up.weight.data = up.weight.detach()[mine].clone()\n        self.up = up.weight",
    ),
)
WRONG.right(
    "shape before enter",
    """
class ParallelAttention(ParallelAttention):
    def forward(self, x):
        batch, tokens, _ = x.shape
        qkv = functional.linear(enter(x, self.group), self.qkv, self.qkv_bias).view(batch, tokens, 3, -1, self.width)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return leave(mixed.reshape(batch, tokens, -1) @ self.out.T, self.group) + self.bias
""",
)
changed("subtracts the bias", "bias taken off", (BIAS, BIAS.replace("+", "-")))
SUM = "leave(functional.linear(hidden, self.down), self.group)"
changed("the mean", "mean instead of sum", (SUM, f"{SUM} / dist.get_world_size(self.group)"))
changed("leaves twice", "summed twice", (SUM, f"leave({SUM}, self.group)"))
changed(
    "width by its own heads",
    "heads of another width",
    ("self.width, heads = group, out.in_features // num_heads,", "heads = group,"),
    ("        mine = slice(heads", "        self.width = out.in_features // num_heads\n        mine = slice(heads"),
    (
        "        self.bias = nn.Parameter(out",
        "        self.width = out.in_features // (heads.stop - heads.start)\n        self.bias = nn.Parameter(out",
    ),
)
changed(
    "a part without a clone",
    "the layers given were changed",
    ("up.weight.detach()[mine].clone()", "up.weight.detach()[mine]"),
)
changed(
    "refuses where there is no head",
    "no refusal",
    ("if size > num_heads:", "if my_part(num_heads, group).start == my_part(num_heads, group).stop:"),
)
changed("another error", "no refusal", ("raise ValueError(", "raise RuntimeError("))
WRONG.right(
    "a bias on the first rank",
    """
class ParallelMLP(ParallelMLP):
    def forward(self, x):
        hidden = functional.gelu(functional.linear(enter(x, self.group), self.up, self.up_bias))
        bias = self.bias if dist.get_rank(self.group) == 0 else None
        return leave(functional.linear(hidden, self.down, bias), self.group)
""",
)
UP_KEPT = "self.up = nn.Parameter(up.weight.detach()[mine].clone())"
changed(
    "the first weight a buffer",
    "a weight takes no step",
    (UP_KEPT, 'self.register_buffer("up", up.weight.detach()[mine].clone())'),
)
WEIGHT, QKV_BIAS = (f"torch.cat([each[mine] for each in qkv.{name}.detach().chunk(3)])" for name in ("weight", "bias"))
OF_HEADS = tuple(
    (old, f"qkv.{name}.detach().unflatten(0, (num_heads, 3, -1))[heads].flatten(0, 2).clone()")
    for name, old in (("weight", WEIGHT), ("bias", QKV_BIAS))
)
THIRDS = "(each.unflatten(-1, (-1, self.width)).transpose(1, 2) for each in qkv.chunk(3, dim=-1))"
changed(
    "q, k and v of a head together",
    "rows of whole heads",
    *OF_HEADS,
    (THIRDS, "qkv.unflatten(-1, (-1, 3, self.width)).permute(3, 0, 2, 1, 4)"),
)
changed(
    "my_part of the width",
    "cut through a head",
    ("slice(heads.start * self.width, heads.stop * self.width)", "my_part(out.in_features, group)"),
)
OF_EACH = "unflatten(0, (num_heads, -1))[:, my_part(self.width, group)].flatten(0, 1)"
changed(
    "columns of every head",
    "a part of every head",
    (WEIGHT, f"torch.cat([each.{OF_EACH} for each in qkv.weight.detach().chunk(3)])"),
    (QKV_BIAS, f"torch.cat([each.{OF_EACH} for each in qkv.bias.detach().chunk(3)])"),
    (
        "out.weight.detach()[:, mine].clone()",
        "out.weight.detach().unflatten(1, (num_heads, -1))[:, :, my_part(self.width, group)].flatten(1, 2)",
    ),
    (
        "self.bias = nn.Parameter(out.bias.detach().clone())",
        "self.bias = nn.Parameter(out.bias.detach().clone())\n        self.width = self.out.shape[1] // num_heads",
    ),
)
FIRST = "functional.gelu(functional.linear(enter(x, self.group), self.up, self.up_bias))"
changed(
    "leaves before gelu",
    "left too early",
    (FIRST, "functional.gelu(enter(leave(functional.linear(x, self.up, self.up_bias), self.group), self.group))"),
)
changed(
    "enters behind gelu",
    "entered too late",
    (FIRST, "enter(functional.gelu(functional.linear(x, self.up, self.up_bias)), self.group)"),
)
changed(
    "a layer with a bias of its own",
    "one bias too many",
    (
        "self.down = nn.Parameter(down.weight.detach()[:, mine].clone())",
        "self.second = nn.Linear(mine.stop - mine.start, down.out_features, dtype=down.weight.dtype)\n"
        "        self.second.weight.data.copy_(down.weight[:, mine])",
    ),
    ("hidden, self.down)", "hidden, self.second.weight)"),
)
changed(
    "a layer of float32",
    "numbers of another dtype",
    (
        UP_KEPT,
        "self.up = nn.Parameter(torch.empty(mine.stop - mine.start, up.in_features))\n        "
        "self.up.data.copy_(up.weight[mine])",
    ),
)
changed(
    "a score of 0 for later tokens",
    "later tokens seen",
    (
        CAUSAL,
        "((q @ k.transpose(-1, -2)).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), 0.0)"
        " / self.width**0.5).softmax(-1) @ v",
    ),
)
changed(
    "columns, columns",
    "gathered without gradients",
    (
        "self.down = nn.Parameter(down.weight.detach()[:, mine].clone())",
        "self.columns = my_part(down.out_features, group)\n"
        "        self.down = nn.Parameter(down.weight.detach()[self.columns].clone())",
    ),
    (
        "return leave(functional.linear(hidden, self.down), self.group) + self.bias",
        """parts = [torch.empty_like(hidden) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, hidden.detach().contiguous(), group=self.group)
        parts[dist.get_rank(self.group)] = hidden
        whole = torch.zeros_like(x)
        whole[..., self.columns] = functional.linear(torch.cat(parts, -1), self.down)
        return leave(whole, self.group) + self.bias""",
    ),
)
changed(
    "rank 0 of all adds the bias", "no bias",
    (BIAS, "leave(functional.linear(hidden, self.down, self.bias if dist.get_rank() == 0 else None), self.group)"),
)  # fmt: skip
