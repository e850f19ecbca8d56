"""Wrong answers to recompute, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


changed("calls torch's own", "calls the library",
        ("    parameters = [parameter", "    from torch.utils.checkpoint import checkpoint\n\n    return checkpoint(module, x, use_reentrant=False)\n    parameters = [parameter"))  # fmt: skip
changed(
    "just calls the module",
    "everything is kept",
    ("    return Recompute.apply(x, *parameters)", "    return module(x)"),
)
changed("parameters not handed over", "no gradient without x",
        ("    return Recompute.apply(x, *parameters)", "    return Recompute.apply(x)"),
        ("            return tuple(found) if x.requires_grad else (None, *found)",
         "            for parameter, each in zip(parameters, found[1:]):\n                parameter.grad = each\n            return found[0]"))  # fmt: skip
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
RUN = "            ctx.save_for_backward(x)\n            return module(x)"
STATE = "            ctx.rng_state = torch.get_rng_state()\n"
COPIES = "            ctx.buffers = [buffer.clone() for buffer in module.buffers()]\n"
FOUND = "            found = list(torch.autograd.grad(out, wanted, gradient, allow_unused=True))\n"
changed("keeps the output, too", "everything is kept",
        (RUN, "            out = module(x)\n            ctx.save_for_backward(x, out)\n            return out"),
        ("(x,) = ctx", "x, _ = ctx"))  # fmt: skip
changed("zeros for the unused", "a gradient in place of None",
        (FOUND, FOUND + "            found = [torch.zeros_like(w) if f is None else f for f, w in zip(found, wanted)]\n"))  # fmt: skip
changed("notes the state after the run", "other random numbers", (STATE, ""),
        (RUN, "            ctx.save_for_backward(x)\n            out = module(x)\n" + STATE + "            return out"))  # fmt: skip
changed("notes the buffers after the run", "begins with later buffers", (COPIES, ""),
        (RUN, "            ctx.save_for_backward(x)\n            out = module(x)\n" + COPIES + "            return out"))  # fmt: skip
changed(
    "notes the buffers themselves",
    "begins with later buffers",
    (COPIES, "            ctx.buffers = list(module.buffers())\n"),
)
changed("one copy for all calls", "begins with later buffers",
        ("            ctx.buffers =", "            module.kept ="), ("put(ctx.buffers)", "put(module.kept)"))  # fmt: skip
changed("puts back the buffers of forward", "buffers of before the first run", (BACK, "            put(ctx.buffers)\n"))
changed("puts back the state of forward", "the random state is left changed",
        ("            torch.set_rng_state(after)\n", "            torch.set_rng_state(ctx.rng_state)\n"))  # fmt: skip
changed("runs again in eval mode", "another mode",
        ("                out = module(x)\n", "                module.eval()\n                out = module(x)\n                module.train()\n"))  # fmt: skip
changed("backward inside backward", "gradients twice",
        (FOUND, "            out.backward(gradient)\n            found = [each.grad for each in wanted]\n"))  # fmt: skip
changed(
    "the gradient of the sum",
    "the gradient that came is not used",
    ("grad(out, wanted, gradient,", "grad(out, wanted, torch.ones_like(out),"),
)
changed("runs in forward as if to keep it", "everything is kept",
        (RUN, "            ctx.save_for_backward(x)\n            with torch.enable_grad():\n                ctx.out = module(x)\n            return ctx.out.detach()"))  # fmt: skip
changed("x as an attribute", "x is not saved",
        ("ctx.save_for_backward(x)", "ctx.x = x"), ("(x,) = ctx.saved_tensors", "x = ctx.x"))  # fmt: skip
changed("saves the parameters", "parameters are saved",
        ("ctx.save_for_backward(x)", "ctx.save_for_backward(x, *parameters)"),
        ("(x,) = ctx.saved_tensors", "x, *_ = ctx.saved_tensors"))  # fmt: skip
changed("one seed for both runs", "the generator is set in forward",
        ("            ctx.rng_state = torch.get_rng_state()\n", "            torch.manual_seed(0)\n"),
        ("            torch.set_rng_state(ctx.rng_state)\n", "            torch.manual_seed(0)\n"))  # fmt: skip
changed("autograd stays off", "autograd is off",
        ("            with torch.enable_grad():\n                out = module(x)", "            out = module(x)"))  # fmt: skip
changed("a gradient for any x", "x cannot have a gradient",
        ("requires_grad_(ctx.needs_input_grad[0])", "requires_grad_()"))  # fmt: skip
changed("the second run is a copy's", "another module than this one ran",
        ("            ctx.rng_state = torch", "            import copy\n\n            ctx.copy = copy.deepcopy(module)\n            ctx.rng_state = torch"),
        ("                out = module(x)", "                out = ctx.copy(x)"),
        ("wanted = [x, *parameters] if x.requires_grad else parameters",
         "inside = [each for each in ctx.copy.parameters() if each.requires_grad]\n            wanted = [x, *inside] if x.requires_grad else inside"))  # fmt: skip
changed("parameters first", "gradients in another order",
        ("return tuple(found) if x.requires_grad else (None, *found)",
         "return (*found[1:], found[0]) if x.requires_grad else (*found, None)"))  # fmt: skip
