# base: student
"""Somebody who came as far as 5.5."""


# %% memory_budget
def state_bytes(num_parameters: int, bytes_per_number: int = 4) -> int:
    """Return the bytes of parameters, gradients and Adam's two numbers for each parameter, all of one size."""
    return (1 + 1 + 2) * num_parameters * bytes_per_number


def gradient_bytes(num_parameters: int, bytes_per_number: int = 4) -> int:
    """Return the bytes of all gradients of one step, what data parallelism must sum over the ranks."""
    return num_parameters * bytes_per_number


def stages_needed(num_parameters: int, activation_bytes: int, device_bytes: int) -> int:
    """Return the smallest number of equal stages that fit: each holds its share of state (float32) and activations.

    Args:
        num_parameters: Of the whole model.
        activation_bytes: Of the whole model.
        device_bytes: Memory of one device.
    """
    return -(-(state_bytes(num_parameters) + activation_bytes) // device_bytes)


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
    with labkit.span("F"):
        left = module(entered)

    loss, gradient = None, None
    if is_last:
        left = loss_fn(left, targets)
        loss = left.detach()
    else:
        dist.send(left.detach().contiguous(), dst=stage + 1)
        gradient = torch.empty_like(left, memory_format=torch.contiguous_format)
        dist.recv(gradient, src=stage + 1)
    with labkit.span("B"):
        torch.autograd.backward(left, gradient)
    if stage > 0:
        dist.send(entered.grad.contiguous(), dst=stage - 1)
    return loss


# %% split_layer
def copy_to_ranks(x: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return x as it is; in backward its gradient is the sum over the ranks of group (Megatron's f)."""

    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            total = gradient.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=group)
            return total

    return F.apply(x)


def sum_over_ranks(x: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Return the sum of all ranks' x, a new tensor; in backward the gradient passes as it is (Megatron's g)."""

    class G(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            total = x.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=group)
            return total

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return G.apply(x)


def split_mlp(
    x: Tensor, columns: nn.Linear, rows: nn.Linear, bias: Tensor, group: dist.ProcessGroup | None = None
) -> Tensor:
    """Return second(gelu(first(x))), computed by all ranks of group together; the same on each of them.

    Args:
        x: The same on every rank, shape (B, D).
        columns: This rank's outputs of the first layer, with their biases.
        rows: This rank's inputs of the second layer, without bias.
        bias: The whole bias of the second layer, the same on every rank.
        group: The ranks that share the layer; None is everybody.
    """
    hidden = nn.functional.gelu(columns(copy_to_ranks(x, group)))
    return sum_over_ranks(rows(hidden), group) + bias


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


# %% gpipe
def forward_of(stage: int, num_stages: int, microbatch: int) -> list[Record]:
    """Return Forward with the messages around it."""
    records: list[Record] = [Recv(stage - 1, microbatch)] if stage > 0 else []
    records.append(Forward(microbatch))
    return records + ([Send(stage + 1, microbatch)] if stage < num_stages - 1 else [])


def backward_of(stage: int, num_stages: int, microbatch: int) -> list[Record]:
    """Return Backward with the messages around it."""
    records: list[Record] = [RecvGrad(stage + 1, microbatch)] if stage < num_stages - 1 else []
    records.append(Backward(microbatch))
    return records + ([SendGrad(stage - 1, microbatch)] if stage > 0 else [])


def gpipe(stage: int, num_stages: int, num_microbatches: int) -> list[Record]:
    """Return what one stage does in GPipe: every microbatch forward, then every microbatch backward, in order.

    Args:
        stage: Whose schedule this is, 0 <= stage < num_stages.
        num_stages: P, 1 or more.
        num_microbatches: M, 1 or more.
    """
    schedule = []
    for microbatch in range(num_microbatches):
        schedule += forward_of(stage, num_stages, microbatch)
    for microbatch in range(num_microbatches):
        schedule += backward_of(stage, num_stages, microbatch)
    return schedule
