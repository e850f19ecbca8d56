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
