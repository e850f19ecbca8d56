"""Wrong answers to recompute, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


changed("calls torch's own", "calls the library",
        ("    parameters = [parameter", "    from torch.utils.checkpoint import checkpoint\n\n    return checkpoint(module, x, use_reentrant=False)\n    parameters = [parameter"))  # fmt: skip  # noqa: E501
changed(
    "just calls the module",
    "everything is kept",
    ("    return Recompute.apply(x, *parameters)", "    return module(x)"),
)
changed("parameters not handed over", "no gradient without x",
        ("    return Recompute.apply(x, *parameters)", "    return Recompute.apply(x)"),
        ("            return tuple(found) if x.requires_grad else (None, *found)",
         "            for parameter, each in zip(parameters, found[1:]):\n                parameter.grad = each\n            return found[0]"))  # fmt: skip  # noqa: E501
changed("draws anew", "other random numbers", ("            torch.set_rng_state(ctx.rng_state)\n", ""))
changed(
    "leaves the old state behind",
    "the random state is left changed",
    ("            torch.set_rng_state(after)\n", ""),
)
changed(
    "no gradient for x",
    "gradients missing",
    ("return tuple(found) if x.requires_grad else", "return (None, *found[1:]) if x.requires_grad else"),
)
changed("leaves the buffers as they are", "BatchNorm counts twice",
        ("            put(left)\n", ""), ("            put(ctx.buffers)\n", ""))  # fmt: skip
BACK = "            put(left)\n"
WANTED = "            wanted = [x"
changed("puts the buffers back at once", "buffers put back too early", (WANTED, BACK + WANTED))
changed("unused not allowed", "unused parameters", (", allow_unused=True", ""))
changed("frozen parameters too", "frozen parameters", (" if parameter.requires_grad]", "]"))
changed("runs again with the buffers of now", "begins with later buffers", ("            put(ctx.buffers)\n", ""))
changed("puts no buffers back", "buffers of an earlier run", ("            put(left)\n", ""))
