# base: solution
"""Everything right, in another style."""


# %% find_deadlock
def find_stuck(schedules):
    plans = [list(steps(schedule)) for schedule in schedules]
    where, finished, posted = [0] * len(plans), set(), set()
    other = {"Send": "Recv", "Recv": "Send", "SendGrad": "RecvGrad", "RecvGrad": "SendGrad"}

    def name(record):
        return type(record).__name__

    def has_what_it_needs(stage, record):
        m, kind = record.microbatch, name(record)
        needed = {
            "Forward": ["Recv"] if stage else [],
            "Send": ["Forward"],
            "Backward": ["Forward"] + (["RecvGrad"] if stage < len(plans) - 1 else []),
            "SendGrad": ["Backward"],
        }.get(kind, [])
        return all((stage, each, m) in finished for each in needed)

    def can(stage, record):
        if not has_what_it_needs(stage, record):
            return False
        kind = name(record)
        return kind not in other or (record.peer, other[kind], record.microbatch, stage) in posted

    before = None
    while before != (where, len(posted)):
        before = (list(where), len(posted))
        for stage, plan in enumerate(plans):
            if where[stage] == len(plan):
                continue
            step = plan[where[stage]]
            for record in step:
                if name(record) in other and has_what_it_needs(stage, record):
                    posted.add((stage, name(record), record.microbatch, record.peer))
            if all(can(stage, record) for record in step):
                finished |= {(stage, name(record), record.microbatch) for record in step}
                where[stage] += 1
    stuck = {}
    for stage, plan in enumerate(plans):
        if where[stage] < len(plan):
            stuck[stage] = [record for record in plan[where[stage]] if not can(stage, record)][0]
    return stuck


# %% recompute
class _Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, module, x, *parameters):
        ctx.module, ctx.parameters, ctx.state = module, parameters, torch.random.get_rng_state()
        ctx.save_for_backward(x)
        ctx.before = {name: buffer.clone() for name, buffer in module.named_buffers()}
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(ctx, gradient):
        (saved,) = ctx.saved_tensors
        x = saved.detach().requires_grad_(ctx.needs_input_grad[1])
        statistics = {name: buffer.clone() for name, buffer in ctx.module.named_buffers()}
        ctx.module.load_state_dict(ctx.before, strict=False)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.random.set_rng_state(ctx.state)
            out = ctx.module(x)
        wanted = [each for each in (x, *ctx.parameters) if each.requires_grad]
        found = iter(torch.autograd.grad(out, wanted, gradient, allow_unused=True))
        ctx.module.load_state_dict(statistics, strict=False)
        return None, *(next(found) if each.requires_grad else None for each in (x, *ctx.parameters))


def checkpointed(module, x):
    return _Again.apply(module, x, *module.parameters())


# %% zero_bubble
def zero_bubble(stage, num_stages, num_microbatches):
    ahead = num_stages - stage
    order = [Forward(m) for m in range(min(ahead, num_microbatches))]
    for m in range(num_microbatches):
        order.append(BackwardInput(m))
        if m >= stage:
            order.append(BackwardWeight(m - stage))
        if m + ahead < num_microbatches:
            order.append(Forward(m + ahead))
    return order + [BackwardWeight(m) for m in range(max(num_microbatches - stage, 0), num_microbatches)]


# %% linear_later
def linear_later(x, weight, bias, later):
    class PutOff(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *parameters):
            ctx.save_for_backward(x)
            return x @ weight.T if bias is None else x @ weight.T + bias

        @staticmethod
        def backward(ctx, gradient):
            def parameters_too(x=ctx.saved_tensors[0]):
                with torch.enable_grad():
                    copies = [t.detach().requires_grad_() for t in (weight, bias) if t is not None]
                    found = torch.autograd.grad(nn.functional.linear(x, *copies), copies, gradient)
                for parameter, part in zip((weight, bias), found, strict=False):
                    if parameter.requires_grad:
                        parameter.grad = part + (0 if parameter.grad is None else parameter.grad)

            later.extend([parameters_too])
            return (gradient @ weight, *[None] * (1 if bias is None else 2))

    return PutOff.apply(x, *([weight] if bias is None else [weight, bias]))


# %% one_f_one_b
def one_f_one_b(stage, num_stages, num_microbatches):
    forwards = [Forward(m) for m in range(num_microbatches)]
    backwards = [Backward(m) for m in range(num_microbatches)]
    order = [forwards.pop(0) for _ in range(min(num_stages - 1 - stage, num_microbatches))]
    while backwards:
        order += forwards[:1] + [backwards.pop(0)]
        del forwards[:1]
    return tuple(order)


# %% data_and_pipeline
def hybrid_step(mesh, run_step, module, num_samples):
    loss = run_step(mesh.get_group("pipe"))
    samples = torch.tensor([num_samples])
    dist.all_reduce(samples, group=mesh.get_group("data"))
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(num_samples)
            dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
            parameter.grad.div_(samples.item())
    if loss is not None:
        loss = loss * num_samples / samples.item()
        dist.all_reduce(loss, group=mesh.get_group("data"))
    return None if loss is None else loss.squeeze()  # the mean, as a number without dimensions


# %% shortest_step
def shortest_step(num_stages, num_microbatches, most_held):
    def words(stage):
        down, up = stage, num_stages - stage
        yield from ["F0"] * (2 * up - 1)
        for _ in range(down):
            yield from ("F1", "F0")
        for _ in range(up):
            yield from ("F1", "I1", "W1")
        for _ in range(max(num_microbatches - num_stages, num_stages - 1)):
            yield from ("F0", "I0", "W0", "F1", "I1", "W1")
        yield from ["I0", "I1"] * down + ["I0", "W0"] * up + ["W1", "W0"] * down

    orders = []
    for stage in range(num_stages):
        counts = {}
        order = []
        for word in words(stage):
            counts[word] = counts.get(word, -1) + 1
            if counts[word] < num_microbatches:
                order.append(f"{word[0]}{counts[word]}.{word[1]}")
        orders.append(order)
    return "v", orders
