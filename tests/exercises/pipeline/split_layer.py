"""Wrong answers to split_layer, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
changed = WRONG.changed


F_BACKWARD = """            total = gradient.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=group)
            return total
"""
G_FORWARD = """            total = x.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=group)
            return total
"""
changed("a plain all_reduce without a backward", "no gradient",
        ("    return G.apply(x)", "    total = x.detach().clone()\n    dist.all_reduce(total, group=group)\n    return total"))  # fmt: skip  # noqa: E501
changed("g in place", "works in place on the caller's tensor",
        (G_FORWARD, "            dist.all_reduce(x, group=group)\n            return x.view_as(x)\n"))  # fmt: skip
changed("f in place on the gradient", "works in place on the caller's tensor",
        (F_BACKWARD, "            dist.all_reduce(gradient, group=group)\n            return gradient\n"))  # fmt: skip
changed("f is g", "f and g swapped", ("    return F.apply(x)", "    return sum_over_ranks(x, group)"))
changed(
    "f passes the gradient on",
    "f does not sum the gradients",
    (F_BACKWARD, "            return gradient\n"),
)
changed("g sums in backward too", "g sums the gradients again",
        ("        def backward(ctx, gradient):\n            return gradient\n", "        def backward(ctx, gradient):\n" + F_BACKWARD))  # fmt: skip  # noqa: E501
changed("g averages", "mean instead of sum",
        (G_FORWARD, G_FORWARD.replace("return total", "return total / dist.get_world_size(group)")))  # fmt: skip
changed("the bias inside the sum", "the bias is added on every rank",
        ("sum_over_ranks(rows(hidden), group) + bias", "sum_over_ranks(rows(hidden) + bias, group)"))  # fmt: skip
changed("the MLP without f", "f forgotten in the MLP", ("columns(copy_to_ranks(x, group))", "columns(x)"))
changed("the default group", "all ranks of the world", ("group=group)", ")"))
changed("f's forward averages equal copies", "more all-reduces than needed",
        ("            return x.view_as(x)\n",
         "            check = torch.ones(1)\n            dist.all_reduce(check, group=group)\n            return x.view_as(x)\n"))  # fmt: skip  # noqa: E501
