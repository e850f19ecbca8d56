"""Wrong answers to layer_time, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

PIECES = "((h, 3 * h // t), (h // t, h), (h, 4 * h // t), (4 * h // t, h))"
changed("whole layers on every rank", "whole products", (PIECES, "((h, 3 * h), (h, h), (h, 4 * h), (4 * h, h))"))
changed(
    "cuts both dims", "cut twice",
    (PIECES, "((h // t, 3 * h // t), (h // t, h // t), (h // t, 4 * h // t), (4 * h // t, h // t))"),
)  # fmt: skip
changed(
    "columns of all", "all by columns", (PIECES, "((h, 3 * h // t), (h, h // t), (h, 4 * h // t), (4 * h, h // t))")
)
changed("rows of all", "all by rows", (PIECES, "((h // t, 3 * h), (h // t, h), (h // t, 4 * h), (4 * h // t, h))"))
changed(
    "columns for rows", "swapped cuts", (PIECES, "((h // t, 3 * h), (h, h // t), (h // t, 4 * h), (4 * h, h // t))")
)
changed("four as one", "divided afterwards", (PIECES, "((h, 12 * h // t),)"))
changed("nothing is summed", "no all-reduces", ("2 * scatter_seconds", "0 * scatter_seconds"))
changed("nothing summed forward", "sums in backward only", ("forward = products + 2 * reduce", "forward = products"))
changed("one all-reduce forward", "one sum forward", ("forward = products + 2 * reduce", "forward = products + reduce"))
changed("sums over replicas", "replicas' sums", ('plan, "tensor", 2', 'plan, "data", 2'))
changed(
    "divides the time", "divided afterwards",
    (PIECES, "((h, 3 * h), (h, h), (h, 4 * h), (4 * h, h))"),
    ("for inner, columns in pieces)", "for inner, columns in pieces) / t"),
)  # fmt: skip
changed("one sequence", "one sequence", ("plan.microbatch * job.num_tokens", "job.num_tokens"))
changed(
    "sums forward only", "sums in forward only", ("backward = 2 * products + 2 * reduce", "backward = 2 * products")
)
changed(
    "one sum a layer", "half the traffic",
    ("forward = products + 2 * reduce", "forward = products + reduce"),
    ("backward = 2 * products + 2 * reduce", "backward = 2 * products + reduce"),
)  # fmt: skip
changed("a scatter for an all-reduce", "half the traffic", ("2 * scatter_seconds", "scatter_seconds"))
changed("four all-reduces backward", "two sums as four", ("2 * products + 2 * reduce", "2 * products + 4 * reduce"))
changed("a piece of the activation", "a piece of the activation", ("2 * rows * h)", "2 * rows * h / t)"))
changed("no tokens", "rows of the microbatch", ("plan.microbatch * job.num_tokens", "plan.microbatch"))
changed(
    "a whole stage", "a whole stage",
    ("    return forward, backward + (forward if plan.recompute else 0.0)\n",
     "    layers = job.num_layers // plan.pipeline\n"
     "    return layers * forward, layers * (backward + (forward if plan.recompute else 0.0))\n"),
)  # fmt: skip
changed("float32 on the wire", "not two bytes", ("2 * rows * h)", "4 * rows * h)"))
changed("backward as forward", "backward once", ("backward = 2 * products", "backward = products"))
changed("forgets what runs again", "nothing again", ("forward if plan.recompute else 0.0", "0.0"))
changed("products again", "no sums again", ("forward if plan.recompute", "products if plan.recompute"))
changed(
    "operations alone", "divided afterwards",
    ("sum(product_seconds(job, rows, inner, columns) for", "sum(2 * rows * inner * columns / job.flops for"),
)  # fmt: skip
changed("queries alone", "q alone", ("((h, 3 * h // t),", "((h, h // t),"))
changed("backward first", "swapped", (
    "return forward, backward + (forward if plan.recompute else 0.0)",
    "return backward + (forward if plan.recompute else 0.0), forward",
))  # fmt: skip
changed("in milliseconds", "milliseconds", (
    "return forward, backward + (forward if plan.recompute else 0.0)",
    "return 1e3 * forward, 1e3 * (backward + (forward if plan.recompute else 0.0))",
))  # fmt: skip
changed("sums one sequence", "one sequence's activation", ("2 * rows * h)", "2 * job.num_tokens * h)"))
changed("one all-reduce backward", "one sum backward", ("2 * products + 2 * reduce", "2 * products + reduce"))
changed("the longest product", "the longest product alone", ("products = sum(", "products = max("))
changed("always computes again", "always again", ("(forward if plan.recompute else 0.0)", "forward"))
WRONG.wrong(
    "a dict", "no number",
    "def layer_seconds(job, plan):\n    return {}\n",
)  # fmt: skip
WRONG.right(
    "all-reduces first",
    """
def layer_seconds(job, plan):
    rows, h, t = plan.microbatch * job.num_tokens, job.width, plan.tensor
    out = product_seconds(job, rows, h, 3 * h // t) + product_seconds(job, rows, h // t, h)
    mlp = product_seconds(job, rows, h, 4 * h // t) + product_seconds(job, rows, 4 * h // t, h)
    one_way = out + mlp + 4 * scatter_seconds(job, plan, "tensor", rows * h * 2)
    return [one_way, one_way * (2 if plan.recompute else 1) + out + mlp]
""",
)
WRONG.changed(
    "runs again in forward", "again in forward",
    ("    return forward, backward + (forward if plan.recompute else 0.0)\n",
     "    return forward * (2 if plan.recompute else 1), backward\n"),
)  # fmt: skip
WRONG.changed(
    "sums what the third product makes", "four times the activation",
    ('"tensor", 2 * rows * h)', '"tensor", 2 * rows * 4 * h)'),
)  # fmt: skip
WRONG.changed(
    "the last layer's head in every layer", "the head in a layer",
    ("    backward = 2 * products + 2 * reduce\n",
     "    backward = 2 * products + 2 * reduce\n    forward += head_seconds(job, plan)[0]\n"
     "    backward += head_seconds(job, plan)[1]\n"),
    ("def layer_seconds(", """def head_seconds(job, plan):
    rows = plan.microbatch * job.num_tokens
    product = product_seconds(job, rows, job.width, job.vocabulary // plan.tensor)
    return product, 2 * product + 2 * scatter_seconds(job, plan, "tensor", 2 * rows * job.width)


def layer_seconds("""),
)  # fmt: skip
changed("tensor ranks share the rows", "rows shared",
        (PIECES, "((h, 3 * h), (h, h), (h, 4 * h), (4 * h, h))"),
        ("product_seconds(job, rows, inner", "product_seconds(job, rows // t, inner"))  # fmt: skip
changed("tensor ranks share the rows, and send them", "rows shared",
        ("rows, h, t = plan.microbatch * job.num_tokens,",
         "rows, h, t = plan.microbatch * job.num_tokens // plan.tensor,"),
        (PIECES, "((h, 3 * h), (h, h), (h, 4 * h), (4 * h, h))"))  # fmt: skip
changed("all microbatches at once", "the whole replica's batch",
        ("plan.microbatch * job.num_tokens", "job.batch // plan.data * job.num_tokens"))  # fmt: skip
changed("a wide all-reduce after the MLP", "four times the activation",
        ("forward = products + 2 * reduce",
         'forward = products + reduce + 2 * scatter_seconds(job, plan, "tensor", 8 * rows * h)'))  # fmt: skip
changed("the head's product in forward", "the head in a layer",
        ("forward = products + 2 * reduce",
         "forward = products + 2 * reduce + product_seconds(job, rows, h, job.vocabulary // t)"),
        ("forward if plan.recompute", "products + 2 * reduce if plan.recompute"))  # fmt: skip
changed("backward twice", "backward twice",
        ("backward + (forward if plan.recompute else 0.0)", "backward * (2 if plan.recompute else 1)"))  # fmt: skip
changed("an all-reduce after each product", "a sum after each product",
        ("forward = products + 2 * reduce", "forward = products + 4 * reduce"))  # fmt: skip
changed("all microbatches of a step", "the whole replica's batch",
        ("return forward, backward + (forward if plan.recompute else 0.0)",
         "count = plan.num_microbatches(job)\n"
         "    return count * forward, count * (backward + (forward if plan.recompute else 0.0))"))  # fmt: skip
