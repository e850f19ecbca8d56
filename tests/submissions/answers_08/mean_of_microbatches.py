# base: solution
"""Each microbatch counts 1/M, whatever its size: right only where the batch divides."""


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

    Args:
        schedule: Records in order. Peers are ranks within group. Messages that stand together are one batch.
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
    entered, left, gradients = {}, {}, {}
    total = None
    for step in steps(schedule):
        batch = []
        for record in step:
            m = record.microbatch
            if isinstance(record, Forward):
                with labkit.span(f"F{m}"):
                    left[m] = module(inputs[m] if inputs is not None else entered[m].requires_grad_())
                    if targets is not None:
                        left[m] = loss_fn(left[m], targets[m]) / len(sizes)
                        total = left[m].detach() if total is None else total + left[m].detach()
            elif isinstance(record, Backward):
                with labkit.span(f"B{m}"):
                    torch.autograd.backward(left.pop(m), gradients.pop(m, None))
            elif isinstance(record, Recv):
                entered[m] = sample.new_empty((sizes[m], *sample.shape))
                batch.append(dist.P2POp(dist.irecv, entered[m], group=group, group_peer=record.peer))
            elif isinstance(record, RecvGrad):
                gradients[m] = torch.empty_like(left[m], memory_format=torch.contiguous_format)
                batch.append(dist.P2POp(dist.irecv, gradients[m], group=group, group_peer=record.peer))
            elif isinstance(record, Send):
                outgoing = left[m].detach().contiguous()
                batch.append(dist.P2POp(dist.isend, outgoing, group=group, group_peer=record.peer))
            else:
                outgoing = entered.pop(m).grad.contiguous()
                batch.append(dist.P2POp(dist.isend, outgoing, group=group, group_peer=record.peer))
        for work in dist.batch_isend_irecv(batch) if batch else []:
            work.wait()
    return total
