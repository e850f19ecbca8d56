# base: solution
"""Every exercise right, written in another way than the lesson does it."""


# %% memory_budget
def state_bytes(num_parameters, bytes_per_number=4):
    parameters = gradients = mean = mean_of_squares = num_parameters
    return bytes_per_number * (parameters + gradients + mean + mean_of_squares)


def gradient_bytes(num_parameters, bytes_per_number=4):
    return state_bytes(num_parameters, bytes_per_number) // 4


def stages_needed(num_parameters, activation_bytes, device_bytes):
    whole, rest = divmod(state_bytes(num_parameters) + activation_bytes, device_bytes)
    return whole + (rest > 0)


# %% one_batch
def run_stage(module, sample, num_samples, inputs=None, targets=None, loss_fn=None):
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    entered = inputs
    if rank:
        entered = torch.zeros(num_samples, *sample.shape, dtype=sample.dtype, requires_grad=True)
        with torch.no_grad():
            dist.recv(entered, rank - 1)
    out = module(entered)
    if rank == last:
        loss = loss_fn(out, targets)
        loss.backward()
    else:
        dist.send(out.data.contiguous(), rank + 1)
        gradient = torch.zeros(out.shape, dtype=out.dtype)
        dist.recv(gradient, rank + 1)
        out.backward(gradient)
    if rank:
        dist.send(entered.grad, rank - 1)
    return loss.detach() if rank == last else None


# %% split_layer
class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        y = x.contiguous().clone()
        dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def copy_to_ranks(x, group=None):
    return _Copy.apply(x, group)


def sum_over_ranks(x, group=None):
    return _Sum.apply(x, group)


def split_mlp(x, columns, rows, bias, group=None):
    y = sum_over_ranks(rows(nn.functional.gelu(columns(copy_to_ranks(x, group)))), group)
    return torch.add(bias, y)


# %% bubble
def bubble_share(num_stages, num_microbatches):
    turns = num_stages - 1 + num_microbatches
    return 1 - num_microbatches / turns


def step_seconds(num_stages, num_microbatches, batch_seconds, overhead_s):
    turns = num_stages - 1 + num_microbatches
    return turns * batch_seconds / num_microbatches + turns * overhead_s


# %% gpipe
def gpipe(stage, num_stages, num_microbatches):
    first, last = stage == 0, stage == num_stages - 1
    there = [
        [Recv(stage - 1, m)] * (not first) + [Forward(m)] + [Send(stage + 1, m)] * (not last)
        for m in range(num_microbatches)
    ]
    back = [
        [RecvGrad(stage + 1, m)] * (not last) + [Backward(m)] + [SendGrad(stage - 1, m)] * (not first)
        for m in range(num_microbatches)
    ]
    return sum(there + back, [])


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


# %% one_f_one_b
def one_f_one_b(stage, num_stages, num_microbatches):
    ahead = min(num_stages - stage, num_microbatches)
    work = [("F", m) for m in range(ahead)]
    for m in range(num_microbatches):
        work.append(("B", m))
        if m + ahead < num_microbatches:
            work.append(("F", m + ahead))
    schedule = []
    for kind, m in work:
        if kind == "F":
            schedule += (
                [Recv(stage - 1, m)] * (stage > 0) + [Forward(m)] + [Send(stage + 1, m)] * (stage < num_stages - 1)
            )
        else:
            schedule += (
                [RecvGrad(stage + 1, m)] * (stage < num_stages - 1)
                + [Backward(m)]
                + [SendGrad(stage - 1, m)] * (stage > 0)
            )
    return schedule


# %% run_schedule
def run_schedule(schedule, module, sizes, sample, inputs=None, targets=None, loss_fn=None, group=None):
    samples, losses, state = sum(sizes), [], {}

    def operation(record):
        m = record.microbatch
        mine = state.setdefault(m, {})
        match record:
            case Recv():
                mine["in"] = torch.empty(sizes[m], *sample.shape, dtype=sample.dtype, device=sample.device)
                return dist.P2POp(dist.irecv, mine["in"], group=group, group_peer=record.peer)
            case Send():
                return dist.P2POp(dist.isend, mine["out"].detach().contiguous(), group=group, group_peer=record.peer)
            case RecvGrad():
                mine["gradient"] = torch.empty(mine["out"].shape, dtype=mine["out"].dtype, device=sample.device)
                return dist.P2POp(dist.irecv, mine["gradient"], group=group, group_peer=record.peer)
            case SendGrad():
                return dist.P2POp(dist.isend, mine["in"].grad.contiguous(), group=group, group_peer=record.peer)

    for step in steps(schedule):
        if isinstance(step[0], Forward):
            m = step[0].microbatch
            mine = state.setdefault(m, {})
            if inputs is not None:
                mine["out"] = module(inputs[m])
            else:
                mine["in"].requires_grad = True
                mine["out"] = module(mine["in"])
        elif isinstance(step[0], Backward):
            m = step[0].microbatch
            mine = state[m]
            if targets is None:
                mine["out"].backward(mine["gradient"])
            else:
                loss = loss_fn(mine["out"], targets[m])
                losses.append(loss.detach() * sizes[m] / samples)
                loss.backward(torch.full_like(loss, sizes[m] / samples))
            del mine["out"]
        else:
            for work in dist.batch_isend_irecv([operation(record) for record in step]):
                work.wait()
            for record in step:
                if isinstance(record, SendGrad):
                    del state[record.microbatch]
    return torch.stack(losses).sum() if losses else None


# %% best_microbatches
def best_num_microbatches(num_stages, batch_seconds, overhead_s, num_samples):
    best, least = 1, float("inf")
    for count in range(1, num_samples + 1):
        seconds = step_seconds(num_stages, count, batch_seconds, overhead_s)
        if seconds < least:
            best, least = count, seconds
    return best


# %% recompute
class _Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, module, x, *parameters):
        ctx.module, ctx.parameters, ctx.state = module, parameters, torch.random.get_rng_state()
        ctx.save_for_backward(x)
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(ctx, gradient):
        (saved,) = ctx.saved_tensors
        x = saved.detach().requires_grad_(ctx.needs_input_grad[1])
        statistics = {name: buffer.clone() for name, buffer in ctx.module.named_buffers()}
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.random.set_rng_state(ctx.state)
            out = ctx.module(x)
        wanted = [each for each in (x, *ctx.parameters) if each.requires_grad]
        found = iter(torch.autograd.grad(out, wanted, gradient, allow_unused=True))
        ctx.module.load_state_dict(statistics, strict=False)
        return None, *(next(found) if each.requires_grad else None for each in (x, *ctx.parameters))


def checkpointed(module, x):
    return _Again.apply(module, x, *module.parameters())


# %% data_and_pipeline
def hybrid_step(mesh, schedule, module, sizes, sample, inputs=None, targets=None, loss_fn=None):
    loss = run_schedule(schedule, module, sizes, sample, inputs, targets, loss_fn, mesh.get_group("pipe"))
    samples = torch.tensor([sum(sizes)])
    dist.all_reduce(samples, group=mesh.get_group("data"))
    for parameter in module.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(sum(sizes))
            dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
            parameter.grad.div_(samples.item())
    if loss is not None:
        loss = loss * sum(sizes) / samples.item()
        dist.all_reduce(loss, group=mesh.get_group("data"))
    return loss


# %% interleaved
def interleaved(stage, num_stages, num_microbatches, num_chunks):
    groups = [range(start, start + num_stages) for start in range(0, num_microbatches, num_stages)]
    forwards = [ForwardChunk(c, m) for group in groups for c in range(num_chunks) for m in group]
    backwards = [BackwardChunk(c, m) for group in groups for c in reversed(range(num_chunks)) for m in group]
    order = [forwards.pop(0) for _ in range(min((num_chunks + 1) * num_stages - 2 * (stage + 1), len(forwards)))]
    while backwards:
        if forwards:
            order.append(forwards.pop(0))
        order.append(backwards.pop(0))
    return order


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


# %% run_orders
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


def run_orders(program, chunks, sizes, samples, later, inputs=None, targets=None, loss_fn=None):
    inside, outside, back, kept, losses = {}, {}, {}, {}, []

    def weights(key):
        for function in kept.pop(key):
            function()

    for record in program:
        chunk, m = getattr(record, "chunk", 0), record.microbatch
        key = (chunk, m)
        if isinstance(record, Take):  # one after the other, blocking: the order is the same on both sides
            shape = outside[key].shape if record.gradient else (sizes[m], *samples[chunk].shape)
            buffer = samples[chunk].new_empty(shape)
            dist.recv(buffer, record.peer)
            (back if record.gradient else inside)[key] = buffer
        elif isinstance(record, Give):
            dist.send((inside.pop(key).grad if record.gradient else outside[key].detach()).contiguous(), record.peer)
        elif isinstance(record, (Forward, ForwardChunk)):
            x = inputs[m] if chunk == 0 and inputs is not None else inside[key]
            if key in inside:
                x.requires_grad_()
            outside[key] = chunks[chunk](x)
            if chunk + 1 == len(chunks) and targets is not None:
                outside[key] = loss_fn(outside[key], targets[m]) * sizes[m] / sum(sizes)
                losses.append(outside[key].detach())
        elif isinstance(record, BackwardWeight):
            weights(key)
        else:
            outside.pop(key).backward(back.pop(key, None))
            kept[key] = list(later)
            del later[:]
            if isinstance(record, BackwardChunk):
                weights(key)
    return sum(losses) if losses else None
