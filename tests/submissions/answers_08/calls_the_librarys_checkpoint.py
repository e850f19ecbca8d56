# base: solution
"""5.10 hands the work to torch.utils.checkpoint."""


# %% recompute
def checkpointed(module: nn.Module, x: Tensor) -> Tensor:
    """Return module(x), keeping only x for backward, which runs the module again; gradients are the same.

    Args:
        module: Any module of one tensor; it may draw random numbers on the CPU.
        x: Its input; it may or may not need a gradient.
    """
    from torch.utils.checkpoint import checkpoint

    return checkpoint(module, x, use_reentrant=False)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]

    class Recompute(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *parameters):
            ctx.rng_state = torch.get_rng_state()
            ctx.save_for_backward(x)
            with torch.no_grad():
                return module(x)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_(ctx.needs_input_grad[0])
            after = torch.get_rng_state()
            torch.set_rng_state(ctx.rng_state)
            with torch.enable_grad():
                out = module(x)
            torch.set_rng_state(after)
            wanted = [x, *parameters] if x.requires_grad else parameters
            found = list(torch.autograd.grad(out, wanted, gradient, allow_unused=True))
            return tuple(found) if x.requires_grad else (None, *found)

    return Recompute.apply(x, *parameters)
