"""Wrong answers to run_schedule, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


SCALE = " * (sizes[m] / sum(sizes))"
changed("forward only", "forward only",
        ("torch.autograd.backward(left.pop(m), gradients.pop(m, None))", "left.pop(m)"),
        ("entered.pop(m).grad.contiguous()", "torch.zeros_like(entered.pop(m))"))  # fmt: skip
changed("no leaf", "no gradient for what entered", (".requires_grad_()", ""))
changed("keeps the detached output", "the graph was cut",
        ("                    total = left[m].detach() if", "                    left[m] = left[m].detach()\n                    total = left[m].detach() if"))  # fmt: skip  # noqa: E501
changed("sends back zeros", "only the last stage has gradients",
        ("torch.autograd.backward(left.pop(m), gradients.pop(m, None))",
         "left.pop(m) if targets is None else torch.autograd.backward(left.pop(m))"),
        ("entered.pop(m).grad.contiguous()", "torch.zeros_like(entered.pop(m))"))  # fmt: skip
changed("the loss as it is", "loss not scaled", (SCALE, ""))
changed("divided by M", "mean of means", (SCALE, " / len(sizes)"))
changed("times the samples", "sum over the samples", (SCALE, " * sizes[m]"))
changed("sets gradients to zero first", "earlier gradients are lost",
        ("    total = None\n", "    total = None\n    module.zero_grad()\n"))  # fmt: skip
changed("zero_grad before each backward", "overwritten instead of accumulated",
        ("                torch.autograd.backward(", "                module.zero_grad()\n                torch.autograd.backward("))  # fmt: skip  # noqa: E501
changed(
    "always the first microbatch",
    "the same microbatch again",
    ("inputs[m] if inputs", "inputs[0][: sizes[m]] if inputs"),
)
changed("counts the forwards", "room of another microbatch",
        ("    total = None\n", "    total, forwards = None, iter(range(len(sizes)))\n"),
        ("inputs[m] if inputs is not None else", "inputs[next(forwards)] if inputs is not None else"))  # fmt: skip
LOOP = "    for record in schedule:\n"
changed("one microbatch through the whole pipeline at a time", "the schedule is not followed",
        (LOOP, """    kinds = (Recv, Forward, Send, RecvGrad, Backward, SendGrad)
    order = {kind: place for place, kind in enumerate(kinds)}
    schedule = sorted(schedule, key=lambda record: (record.microbatch, order[type(record)]))
""" + LOOP))  # fmt: skip
changed("all forwards, then all backwards, whatever the schedule", "the schedule is not followed",
        (LOOP, """    backward = (RecvGrad, Backward, SendGrad)
    schedule = [r for r in schedule if not isinstance(r, backward)] + [r for r in schedule if isinstance(r, backward)]
""" + LOOP))  # fmt: skip
changed("keeps all outputs", "keeps what it no longer needs", ("left.pop(m), gradients", "left[m], gradients"))
changed("sends a view", "not contiguous", ("left[m].detach().contiguous()", "left[m].detach()"))
changed("peers of the world", "peers taken as ranks of the world",
        ("group_src=record.peer", "src=record.peer"), ("group_dst=record.peer", "dst=record.peer"))  # fmt: skip
changed("the last stage waits for a gradient", "waits for a message that nobody sends",
        ("            if targets is None:\n", """            if targets is not None and dist.get_world_size(group) > 1:
                dist.recv(torch.zeros(()), group_src=0, group=group)
            if targets is None:
"""))  # fmt: skip
SENDS = "dist.isend(left[m].detach().contiguous(), group=group, group_dst=record.peer)"
FREED = '                sent.pop(("F", m)).wait()  # its gradient is here, so it has arrived: free what it held\n'
changed("waits for every send", "blocking sends face each other",
        (f'sent["F", m] = {SENDS}', f"{SENDS}.wait()"), (FREED, ""),
        ('sent["B", m] = ', ""),
        ("entered.pop(m).grad.contiguous(), group=group, group_dst=record.peer)",
         "entered.pop(m).grad.contiguous(), group=group, group_dst=record.peer).wait()"))  # fmt: skip
changed("sends and receives block", "blocking sends face each other",
        (f'sent["F", m] = {SENDS}', SENDS.replace("isend", "send")),
        ('sent["B", m] = dist.isend', "dist.send"),
        (FREED, ""),
        )  # fmt: skip
changed("never waits for what it receives", "not waited for",
        ('                coming.pop(("F", m)).wait()\n', "                pass\n"))  # fmt: skip
changed(
    "a barrier at the end", "calls a collective", ("    return total\n", "    dist.barrier(group)\n    return total\n")
)
changed("weighs by float32", "counted in float32",
        (SCALE, " * (torch.tensor(sizes, dtype=torch.float32)[m] / sum(sizes)).double()"))  # fmt: skip
changed("the loss keeps its graph", "the loss keeps its graph",
        ("total = left[m].detach() if total is None else total + left[m].detach()",
         "total = left[m] if total is None else total + left[m]"))  # fmt: skip
changed("adds up numbers", "the loss is a number",
        ("total = left[m].detach() if total is None else total + left[m].detach()",
         "total = left[m].item() if total is None else total + left[m].item()"))  # fmt: skip
changed("scaled again at the end", "scaled twice or in another place", (SCALE, SCALE + " / len(sizes)"))
changed("divided by the stages", "scaled by the number of stages", (SCALE, SCALE + " / dist.get_world_size(group)"))
changed("room of torch's default dtype", "room of another size",
        ("sample.new_empty((sizes[m], *sample.shape))", "torch.empty((sizes[m], *sample.shape))"))  # fmt: skip
changed("a run to see the shape", "forward more than once",
        ("torch.empty_like(left[m], memory",
         "torch.empty_like(module(inputs[m] if inputs is not None else entered[m]), memory"))  # fmt: skip
LOSS = "total = left[m].detach() if total is None else total + left[m].detach()"
changed("returns the last microbatch's", "another loss than the gradients'", (LOSS, "total = left[m].detach()"))
changed("the loss in float32", "counted in float32", (LOSS, LOSS.replace("detach()", "detach().float()")))
changed("returns after the first record", "no loss returned", ("    return total\n", "    return None\n"))
changed("sends the data back", "what entered was sent back",
        ("entered.pop(m).grad.contiguous()", "entered.pop(m).data.contiguous()"))  # fmt: skip
changed("the first record alone", "work left undone",
        ("    for work in sent.values():\n", "        break\n    for work in sent.values():\n"))  # fmt: skip
changed("leaves its last sends alone", "not waited for", ("    for work in sent.values():\n        work.wait()\n", ""))
changed(
    "room like what entered",
    "room of another size",
    ("torch.empty_like(left[m], memory_format=torch.contiguous_format)", "sample.new_empty((sizes[m], *sample.shape))"),
)
changed(
    "each stage weighs what comes back",
    "scaled twice or in another place",
    ("gradients.pop(m, None))", "gradients.pop(m) * (sizes[m] / sum(sizes)) if m in gradients else None)"),
)
changed(
    "the mean of the microbatches' losses",
    "another loss than the gradients'",
    (LOSS, "total = (left[m].detach() if total is None else total + left[m].detach()) * 1.0"),
    ("    return total\n", "    return total if total is None else total / len(sizes)\n"),
)
changed("zero on the other stages", "a loss on every stage", ("    total = None\n", "    total = torch.zeros(())\n"))
changed(
    "the loss not weighed, the gradient is",
    "another loss than the gradients'",
    (LOSS, LOSS.replace("left[m].detach()", "left[m].detach() / (sizes[m] / sum(sizes))")),
)
changed(
    "equal sizes",
    "room of another microbatch",
    ("sample.new_empty((sizes[m], *sample.shape))", "sample.new_empty((sizes[0], *sample.shape))"),
)
changed(
    "backward of its own sum",
    "each stage goes backward from its own output",
    ("torch.autograd.backward(left.pop(m), gradients.pop(m, None))", "left.pop(m).sum().backward()"),
)
WRONG.right(
    "tags, and outputs kept until their sends are done",
    """
def run_schedule(schedule, module, sizes, sample, inputs=None, targets=None, loss_fn=None, group=None):
    entered, left, gradients, coming, kept, losses = {}, {}, {}, {}, [], []

    def send(tensor, record):
        held = tensor.detach().contiguous()
        kept.append((held, dist.isend(held, group=group, group_dst=record.peer, tag=record.microbatch)))

    def receive(where, like, record):
        where[record.microbatch] = like
        coming[id(where), record.microbatch] = dist.irecv(
            like, group=group, group_src=record.peer, tag=record.microbatch
        )

    for record in schedule:
        m = record.microbatch
        if isinstance(record, Recv):
            receive(entered, sample.new_empty((sizes[m], *sample.shape)), record)
        elif isinstance(record, RecvGrad):
            receive(gradients, torch.empty_like(left[m], memory_format=torch.contiguous_format), record)
        elif isinstance(record, Send):
            send(left[m], record)
        elif isinstance(record, SendGrad):
            send(entered.pop(m).grad, record)
        elif isinstance(record, Forward):
            if inputs is None:
                coming.pop((id(entered), m)).wait()
                entered[m].requires_grad_()
            left[m] = module(entered[m] if inputs is None else inputs[m])
            if targets is not None:
                left[m] = loss_fn(left[m], targets[m]) * (sizes[m] / sum(sizes))
                losses.append(left[m].detach())
        else:
            if targets is None:
                coming.pop((id(gradients), m)).wait()
            torch.autograd.backward(left.pop(m), gradients.pop(m, None))
    for _, work in kept:
        work.wait()
    return sum(losses) if losses else None
""",
)
changed(
    "takes what came first",
    "room of another microbatch",
    ("    total = None\n", "    total, came = None, []\n"),
    (
        "entered[m] = sample.new_empty((sizes[m], *sample.shape))",
        "came.append(sample.new_empty((sizes[m], *sample.shape)))",
    ),
    ("dist.irecv(entered[m],", "dist.irecv(came[-1],"),
    ('coming.pop(("F", m)).wait()\n', 'coming.pop(("F", m)).wait()\n                entered[m] = came.pop(0)\n'),
)
changed("whoever has loss_fn is last", "a loss where no targets are",
        ("if targets is not None:", "if loss_fn is not None:"))  # fmt: skip
changed("one buffer for all that enters", "one room for several microbatches",
        ("    total = None\n", "    total, room = None, sample.new_empty((max(sizes), *sample.shape))\n"),
        ("sample.new_empty((sizes[m], *sample.shape))", "room[: sizes[m]]"))  # fmt: skip
BACKWARD = "torch.autograd.backward(left.pop(m), gradients.pop(m, None))"
changed("asks autograd for one gradient", "gradients not added to .grad",
        (BACKWARD, """if m in entered:
                    (back[m],) = torch.autograd.grad(left.pop(m), entered[m], gradients.pop(m, None))
                else:
                    torch.autograd.backward(left.pop(m), gradients.pop(m, None))"""),
        ("    total = None\n", "    total, back = None, {}\n"),
        ("entered.pop(m).grad.contiguous()", "back.pop(m).contiguous()"))  # fmt: skip
changed("the mean of a product", "the mean of a product", (BACKWARD, """\
(left.pop(m) if targets is not None else (left.pop(m) * gradients.pop(m)).mean()).backward()"""))  # fmt: skip
changed("the last stage detaches its output", "backward does not reach the module",
        ("left[m] = loss_fn(left[m], targets[m])", "left[m] = loss_fn(left[m].detach().requires_grad_(), targets[m])"),
        ("entered.pop(m).grad.contiguous()", "torch.zeros_like(entered[m]) if entered[m].grad is None else entered.pop(m).grad.contiguous()"))  # fmt: skip  # noqa: E501
changed("counts the records of each kind", "microbatches in the order of their numbers",
        ("    for record in schedule:\n        m = record.microbatch\n", """\
    seen = {}
    for record in schedule:
        m = seen[type(record)] = seen.get(type(record), -1) + 1
"""))  # fmt: skip
changed("adds up losses with their graphs", "keeps what it no longer needs",
        ("total = left[m].detach() if total is None else total + left[m].detach()",
         "total = left[m] if total is None else total + left[m]"),
        ("    return total", "    return None if total is None else total.detach()"))  # fmt: skip
changed(
    "backward of an output alone",
    "backward without a gradient",
    ("torch.autograd.backward(left.pop(m), gradients.pop(m, None))", "left.pop(m).backward()"),
)
