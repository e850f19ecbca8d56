# base: student
"""Somebody who came as far as the bubble."""


# %% one_batch
def run_stage(
    module: nn.Module,
    sample: Tensor,
    num_samples: int,
    inputs: Tensor | None = None,
    targets: Tensor | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor | None:
    """Carry a whole batch forward and backward through this rank's stage; gradients are added to .grad.

    The module runs once. Messages go from point to point, to the neighbours only. With one rank nothing is sent.

    Args:
        module: This stage's layers.
        sample: One sample as it enters this stage, without the batch dimension: shape, dtype and device count.
        num_samples: Samples in the batch.
        inputs: The batch, on the first stage (rank 0); else None.
        targets: What should come out, on the last stage; else None.
        loss_fn: loss_fn(outputs, targets) is the mean over the samples; on the last stage.

    Returns:
        The loss on the last stage, detached; None on the others.
    """
    stage = dist.get_rank()
    is_last = stage == dist.get_world_size() - 1
    if stage == 0:
        entered = inputs
    else:
        entered = sample.new_empty((num_samples, *sample.shape))
        dist.recv(entered, src=stage - 1)
        entered.requires_grad_()
    with labkit.span("F0"):
        left = module(entered)

    loss, gradient = None, None
    if is_last:
        left = loss_fn(left, targets)
        loss = left.detach()
    else:
        dist.send(left.detach().contiguous(), dst=stage + 1)
        gradient = torch.empty_like(left, memory_format=torch.contiguous_format)
        dist.recv(gradient, src=stage + 1)
    with labkit.span("B0"):
        torch.autograd.backward(left, gradient)
    if stage > 0:
        dist.send(entered.grad.contiguous(), dst=stage - 1)
    return loss


# %% bubble
def bubble_share(num_stages: int, num_microbatches: int) -> float:
    """Return the share of all time that a stage waits, where all stages and all microbatches take equally long."""
    return (num_stages - 1) / (num_microbatches + num_stages - 1)


def step_seconds(num_stages: int, num_microbatches: int, batch_seconds: float, overhead_s: float) -> float:
    """Return the time of a step: forward and backward of all microbatches through all stages.

    Args:
        num_stages: P.
        num_microbatches: M.
        batch_seconds: Forward and backward of the whole batch on one stage, without overhead.
        overhead_s: What each microbatch costs each stage on top.
    """
    return (num_microbatches + num_stages - 1) * (batch_seconds / num_microbatches + overhead_s)
