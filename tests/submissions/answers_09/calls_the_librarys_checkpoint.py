# base: solution
# loses: recompute
"""recompute hands the work to torch.utils.checkpoint."""


# %% recompute
def checkpointed(module, x):
    from torch.utils.checkpoint import checkpoint

    return checkpoint(module, x, use_reentrant=False)
