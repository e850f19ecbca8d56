# base: solution
# loses: run_schedule
"""Every microbatch counts 1/M."""


# %% run_schedule
def run_schedule(
    schedule: list[Record],
    module: nn.Module,
    sizes: list[int],
    sample: Tensor,
    inputs: list[Tensor] | None = None,
    targets: list[Tensor] | None = None,
    loss_fn: Callable[[Tensor, Tensor], Tensor] | None = None,
    group: dist.ProcessGroup | None = None,
) -> Tensor | None:
    """Carry out this stage's schedule; gradients of the mean loss over the whole batch are added to .grad.

    The module runs once for each Forward. All messages have arrived when this returns. No collective is called.

    Args:
        schedule: Records in order; peers are ranks within group.
        module: This stage's layers.
        sizes: Samples in each microbatch, the same list on every stage; they may differ.
        sample: One sample as it enters this stage, without the batch dimension: shape, dtype and device count.
        inputs: The microbatches, on the first stage; else None.
        targets: What should come out for each microbatch, on the last stage; else None.
        loss_fn: loss_fn(outputs, targets) is the mean over a microbatch's samples; on the last stage.
        group: The stages' process group; None is the default group.

    Returns:
        The mean loss over the whole batch on the last stage, a detached tensor; None on the others.
    """
    entered, left, gradients, coming, sent = {}, {}, {}, {}, {}
    total = None
    for record in schedule:
        m = record.microbatch
        if isinstance(record, Recv):
            entered[m] = sample.new_empty((sizes[m], *sample.shape))
            coming["F", m] = dist.irecv(entered[m], group=group, group_src=record.peer)
        elif isinstance(record, RecvGrad):
            gradients[m] = torch.empty_like(left[m], memory_format=torch.contiguous_format)
            coming["B", m] = dist.irecv(gradients[m], group=group, group_src=record.peer)
        elif isinstance(record, Send):
            sent["F", m] = dist.isend(left[m].detach().contiguous(), group=group, group_dst=record.peer)
        elif isinstance(record, SendGrad):
            sent["B", m] = dist.isend(entered.pop(m).grad.contiguous(), group=group, group_dst=record.peer)
        elif isinstance(record, Forward):
            if inputs is None:
                coming.pop(("F", m)).wait()
            with labkit.span(f"F{m}"):
                left[m] = module(inputs[m] if inputs is not None else entered[m].requires_grad_())
                if targets is not None:
                    left[m] = loss_fn(left[m], targets[m]) / len(sizes)
                    total = left[m].detach() if total is None else total + left[m].detach()
        else:
            if targets is None:
                coming.pop(("B", m)).wait()
                sent.pop(("F", m)).wait()  # its gradient is here, so it has arrived: free what it held
            with labkit.span(f"B{m}"):
                torch.autograd.backward(left.pop(m), gradients.pop(m, None))
    for work in sent.values():
        work.wait()
    return total
