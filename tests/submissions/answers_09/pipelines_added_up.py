# base: solution
# loses: data_and_pipeline
"""The gradients of the pipelines' means are added, not weighed."""


# %% data_and_pipeline
def hybrid_step(
    mesh: dist.DeviceMesh,
    run_step: Callable[[dist.ProcessGroup], Tensor | None],
    module: nn.Module,
    num_samples: int,
) -> Tensor | None:
    """Run one step of several pipelines; .grad becomes the gradient of the mean over the samples of all of them.

    Args:
        mesh: A mesh with the axes "data" and "pipe".
        run_step: Runs this rank's pipeline once, in the group it is given. Afterwards .grad is the gradient of the mean over
            the pipeline's own samples. Returns that mean loss on the last stage, None on the others.
        module: This rank's stage. A parameter that is frozen or unused keeps None as its gradient, in every pipeline alike.
        num_samples: Samples of this rank's own pipeline; pipelines may have different ones.

    Returns:
        The mean loss over all samples on the last stages; None on the others.
    """
    data = mesh.get_group("data")
    loss = run_step(mesh.get_group("pipe"))
    everybody = torch.tensor(float(num_samples), dtype=torch.float64)
    dist.all_reduce(everybody, group=data)
    share = num_samples / everybody.item()
    for tensor in [p.grad for p in module.parameters() if p.grad is not None] + ([] if loss is None else [loss]):
        dist.all_reduce(tensor, group=data)
    return loss
