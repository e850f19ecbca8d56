"""Wrong answers to lesson 05, each a mistake that learners really make, and the mistake a check must name.

Most of them are the lesson's own answer with one thing changed, so that nothing else is wrong.
"""

from __future__ import annotations

from functools import cache

from tests.checks.lesson_cells import lesson
from tests.checks.wrong_answer import WrongAnswer

WRONG: list[WrongAnswer] = []


@cache
def _answer(exercise: str) -> str:
    (cell,) = [cell for cell in lesson("05").cells if cell.role == "exercise" and cell.exercise == exercise]
    return cell.source


def wrong(exercise: str, name: str, mistake: str, source: str) -> None:
    WRONG.append(WrongAnswer(exercise, name, mistake, source))


def changed(exercise: str, name: str, mistake: str, *changes: tuple[str, str]) -> None:
    """Add the lesson's answer with each of the texts replaced."""
    source = _answer(exercise)
    for old, new in changes:
        assert old in source, f"{exercise}, {name}: the answer has no {old!r}"
        source = source.replace(old, new)
    wrong(exercise, name, mistake, source)


# ---- memory_budget

STATE = "return (1 + 1 + 2) * num_parameters * bytes_per_number"
STAGES = "return -(-(state_bytes(num_parameters) + activation_bytes) // device_bytes)"
changed("memory_budget", "one average of Adam", "one number for Adam", (STATE, STATE.replace("+ 2", "+ 1")))
changed("memory_budget", "parameters and one gradient", "gradients forgotten", (STATE, STATE.replace("1 + 1 + 2", "2")))
changed("memory_budget", "parameters alone", "the parameters alone", (STATE, STATE.replace("1 + 1 + 2", "1")))
changed("memory_budget", "half a stage", "part of a stage", (STAGES, STAGES.replace("-(-(", "((").replace("//", "/")))
changed("memory_budget", "16 bytes whatever the type", "always four bytes", (STATE, "return 16 * num_parameters"))
changed("memory_budget", "no activations", "activations forgotten", (STAGES, STAGES.replace(" + activation_bytes", "")))
changed("memory_budget", "rounds down", "rounded down", (STAGES, STAGES.replace("-(-(", "((")))
changed("memory_budget", "always one more", "one stage too many", (STAGES, STAGES.replace("-(-(", "((") + " + 1"))
changed("memory_budget", "prints", "returns nothing",
        ("return num_parameters * bytes_per_number", "print(num_parameters * bytes_per_number)"))  # fmt: skip

# ---- one_batch

changed("one_batch", "forward only", "forward only",
    ("        torch.autograd.backward(left, gradient)", "        pass"),
        ("entered.grad.contiguous()", "torch.zeros_like(entered)"))  # fmt: skip
changed(
    "one_batch", "what entered is no leaf", "no gradient for what entered", ("        entered.requires_grad_()\n", "")
)
changed("one_batch", "runs the module under no_grad", "the graph was cut",
        ('with labkit.span("F"):', 'with labkit.span("F"), torch.no_grad():'))  # fmt: skip
changed("one_batch", "the last stage only", "only the last stage has gradients",
        ("        torch.autograd.backward(left, gradient)",
         "        torch.autograd.backward(left, gradient) if is_last else None"),
        ("entered.grad.contiguous()", "torch.zeros_like(entered)"))  # fmt: skip
changed("one_batch", "a run to see the shape", "forward more than once",
        ("torch.empty_like(left, memory", "torch.empty_like(module(entered), memory"))  # fmt: skip
changed("one_batch", "sends a view", "not contiguous", ("left.detach().contiguous()", "left.detach()"))
changed(
    "one_batch", "the first stage receives too", "the first stage receives", ("    if stage == 0:\n", "    if False:\n")
)
changed("one_batch", "sets gradients to zero first", "gradients that were there are lost",
        ("    loss, gradient = None, None\n", "    loss, gradient = None, None\n    module.zero_grad()\n"))  # fmt: skip
changed("one_batch", "divides by the number of stages", "scaled by the number of stages",
        ("loss_fn(left, targets)", "loss_fn(left, targets) / dist.get_world_size()"))  # fmt: skip
changed("one_batch", "does not send the gradient on", "waits for a message that nobody sends",
        ("    if stage > 0:\n        dist.send(entered.grad.contiguous(), dst=stage - 1)\n", ""))  # fmt: skip
changed("one_batch", "the loss as it is", "the loss drags its graph along", ("loss = left.detach()", "loss = left"))

# ---- split_layer

F_BACKWARD = """            total = gradient.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=group)
            return total
"""
G_FORWARD = """            total = x.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=group)
            return total
"""
changed("split_layer", "a plain all_reduce without a backward", "no gradient",
        ("    return G.apply(x)", "    total = x.detach().clone()\n    dist.all_reduce(total, group=group)\n    return total"))  # fmt: skip  # noqa: E501
changed("split_layer", "g in place", "works in place on the caller's tensor",
        (G_FORWARD, "            dist.all_reduce(x, group=group)\n            return x.view_as(x)\n"))  # fmt: skip
changed("split_layer", "f in place on the gradient", "works in place on the caller's tensor",
        (F_BACKWARD, "            dist.all_reduce(gradient, group=group)\n            return gradient\n"))  # fmt: skip
changed("split_layer", "f is g", "f and g swapped", ("    return F.apply(x)", "    return sum_over_ranks(x, group)"))
changed(
    "split_layer",
    "f passes the gradient on",
    "f does not sum the gradients",
    (F_BACKWARD, "            return gradient\n"),
)
changed("split_layer", "g sums in backward too", "g sums the gradients again",
        ("        def backward(ctx, gradient):\n            return gradient\n", "        def backward(ctx, gradient):\n" + F_BACKWARD))  # fmt: skip  # noqa: E501
changed("split_layer", "g averages", "mean instead of sum",
        (G_FORWARD, G_FORWARD.replace("return total", "return total / dist.get_world_size(group)")))  # fmt: skip
changed("split_layer", "the bias inside the sum", "the bias is added on every rank",
        ("sum_over_ranks(rows(hidden), group) + bias", "sum_over_ranks(rows(hidden) + bias, group)"))  # fmt: skip
changed(
    "split_layer", "the MLP without f", "f forgotten in the MLP", ("columns(copy_to_ranks(x, group))", "columns(x)")
)
changed("split_layer", "the default group", "all ranks of the world", ("group=group)", ")"))
changed("split_layer", "f's forward averages equal copies", "more all-reduces than needed",
        ("            return x.view_as(x)\n",
         "            check = torch.ones(1)\n            dist.all_reduce(check, group=group)\n            return x.view_as(x)\n"))  # fmt: skip  # noqa: E501

# ---- bubble

BUBBLE = "return (num_stages - 1) / (num_microbatches + num_stages - 1)"
SECONDS = "return (num_microbatches + num_stages - 1) * (batch_seconds / num_microbatches + overhead_s)"
changed("bubble", "over the working time", "waiting over working time",
        (BUBBLE, "return (num_stages - 1) / num_microbatches"))  # fmt: skip
changed("bubble", "P turns", "the last stage does not wait so long",
        (BUBBLE, "return num_stages / (num_microbatches + num_stages)"))  # fmt: skip
changed(
    "bubble",
    "efficiency",
    "the share of work",
    (BUBBLE, "return num_microbatches / (num_microbatches + num_stages - 1)"),
)
changed(
    "bubble",
    "no bubble in the time",
    "bubble forgotten",
    ("(num_microbatches + num_stages - 1) * (batch", "num_microbatches * (batch"),
)
changed("bubble", "overhead once", "overhead counted once",
        (SECONDS, "return (num_microbatches + num_stages - 1) * batch_seconds / num_microbatches + overhead_s"))  # fmt: skip  # noqa: E501
changed(
    "bubble", "a whole batch a turn", "whole batch in each turn", ("batch_seconds / num_microbatches", "batch_seconds")
)

# ---- gpipe

changed("gpipe", "backward in reverse order", "backward from the last to the first",
        ("    for microbatch in range(num_microbatches):\n        schedule += backward_of",
         "    for microbatch in reversed(range(num_microbatches)):\n        schedule += backward_of"))  # fmt: skip
changed("gpipe", "forward and backward in turns", "one forward, one backward",
        ("    for microbatch in range(num_microbatches):\n        schedule += backward_of", "        schedule += backward_of"))  # fmt: skip  # noqa: E501
changed("gpipe", "microbatches from 1", "microbatches counted from 1",
        ("range(num_microbatches)", "range(1, num_microbatches + 1)"))  # fmt: skip
changed("gpipe", "the first stage receives", "the first stage has nobody before it",
        ("[Recv(stage - 1, microbatch)] if stage > 0 else []", "[Recv(stage - 1, microbatch)]"))  # fmt: skip
changed("gpipe", "the last stage receives a gradient", "the last stage has nobody behind it",
        ("[RecvGrad(stage + 1, microbatch)] if stage < num_stages - 1 else []", "[RecvGrad(stage + 1, microbatch)]"))  # fmt: skip  # noqa: E501
changed("gpipe", "gradients come from the stage before", "gradients go the wrong way",
        ("RecvGrad(stage + 1", "RecvGrad(stage - 1"))  # fmt: skip
changed(
    "gpipe", "no gradients are sent", "no messages", ("([SendGrad(stage - 1, microbatch)] if stage > 0 else [])", "[]")
)
changed(
    "gpipe",
    "no backward",
    "only forward",
    ("        schedule += backward_of(stage, num_stages, microbatch)\n", "        pass\n"),
)
changed("gpipe", "lists in a list", "lists in the list",
        ("schedule += forward_of(stage, num_stages, microbatch)", "schedule.append(forward_of(stage, num_stages, microbatch))"))  # fmt: skip  # noqa: E501
changed("gpipe", "returns nothing", "returns nothing", ("    return schedule\n", "    print(schedule)\n"))

# ---- find_deadlock

changed("find_deadlock", "the list of stages", "a dict was asked for",
        ("return {stage: next(r for r in plans[stage][at[stage]] if not can(stage, r)) for stage in waiting}", "return waiting"))  # fmt: skip  # noqa: E501
wrong("find_deadlock", "always fine", "never finds anything", "def find_stuck(schedules):\n    return {}\n")
changed("find_deadlock", "one message after another", "waits where it need not",
        ("plans = [list(steps(schedule)) for schedule in schedules]",
         "plans = [[[record] for record in schedule] for schedule in schedules]"))  # fmt: skip
changed("find_deadlock", "sends never wait", "sends do not wait",
        ("        if isinstance(record, MESSAGES):\n            return (",
         "        if isinstance(record, (Recv, RecvGrad)):\n            return ("))  # fmt: skip
changed("find_deadlock", "work needs nothing", "does not see what work needs",
        ("        m = record.microbatch\n        if isinstance(record, Send):", "        m = record.microbatch\n        return []\n        if isinstance(record, Send):"))  # fmt: skip  # noqa: E501
changed("find_deadlock", "names the last record of the step", "another record of the same step",
        ("next(r for r in plans[stage][at[stage]] if not can(stage, r))", "plans[stage][at[stage]][-1]"))  # fmt: skip
changed(
    "find_deadlock",
    "names the lowest stage only",
    "stages that wait for a stuck stage",
    ("for stage in waiting}", "for stage in waiting[:1]}"),
)
changed("find_deadlock", "the whole step", "a step instead of a record",
        ("next(r for r in plans[stage][at[stage]] if not can(stage, r))", "plans[stage][at[stage]]"))  # fmt: skip

# ---- one_f_one_b

changed(
    "one_f_one_b",
    "GPipe again",
    "that is GPipe",
    (
        "warmup = min(num_stages - 1 - stage, num_microbatches)",
        "return gpipe(stage, num_stages, num_microbatches)\n    warmup = 0",
    ),
)
changed(
    "one_f_one_b",
    "no limit",
    "warm-up not limited",
    ("min(num_stages - 1 - stage, num_microbatches)", "num_stages - 1 - stage"),
)
changed("one_f_one_b", "P - s", "warm-up one too long", ("num_stages - 1 - stage, ", "num_stages - stage, "))
changed(
    "one_f_one_b",
    "P - 2 - s",
    "warm-up one too short",
    ("min(num_stages - 1 - stage, num_microbatches)", "max(min(num_stages - 2 - stage, num_microbatches), 0)"),
)
changed(
    "one_f_one_b", "P - 1 everywhere", "the same warm-up everywhere", ("num_stages - 1 - stage, ", "num_stages - 1, ")
)
changed("one_f_one_b", "the stage's number", "the warm-up of the other end", ("num_stages - 1 - stage, ", "stage, "))
changed(
    "one_f_one_b",
    "no cool-down",
    "cool-down forgotten",
    ("range(num_microbatches - warmup, num_microbatches)", "range(0)"),
)
changed("one_f_one_b", "backward first in each pair", "backward before forward",
        ("        schedule += forward_of(stage, num_stages, microbatch)\n        schedule += backward_of(stage, num_stages, microbatch - warmup)\n",  # noqa: E501
         "        schedule += backward_of(stage, num_stages, microbatch - warmup)\n"
         "        schedule += forward_of(stage, num_stages, microbatch)\n"))  # fmt: skip

# ---- run_schedule

SCALE = " * (sizes[m] / sum(sizes))"
changed("run_schedule", "forward only", "forward only",
        ("torch.autograd.backward(left.pop(m), gradients.pop(m, None))", "left.pop(m)"),
        ("entered.pop(m).grad.contiguous()", "torch.zeros_like(entered.pop(m))"))  # fmt: skip
changed("run_schedule", "no leaf", "no gradient for what entered", (".requires_grad_()", ""))
changed("run_schedule", "keeps the detached output", "the graph was cut",
        ("                        total = left[m].detach() if", "                        left[m] = left[m].detach()\n                        total = left[m].detach() if"))  # fmt: skip  # noqa: E501
changed("run_schedule", "sends back zeros", "only the last stage has gradients",
        ("torch.autograd.backward(left.pop(m), gradients.pop(m, None))",
         "left.pop(m) if targets is None else torch.autograd.backward(left.pop(m))"),
        ("entered.pop(m).grad.contiguous()", "torch.zeros_like(entered.pop(m))"))  # fmt: skip
changed("run_schedule", "the loss as it is", "loss not scaled", (SCALE, ""))
changed("run_schedule", "divided by M", "mean of means", (SCALE, " / len(sizes)"))
changed("run_schedule", "times the samples", "sum over the samples", (SCALE, " * sizes[m]"))
changed("run_schedule", "sets gradients to zero first", "gradients that were there are lost",
        ("    total = None\n", "    total = None\n    module.zero_grad()\n"))  # fmt: skip
changed("run_schedule", "zero_grad before each backward", "overwritten instead of accumulated",
        ("                    torch.autograd.backward(", "                    module.zero_grad()\n                    torch.autograd.backward("))  # fmt: skip  # noqa: E501
changed(
    "run_schedule",
    "always the first microbatch",
    "the same microbatch again",
    ("inputs[m] if inputs", "inputs[0][: sizes[m]] if inputs"),
)
changed("run_schedule", "counts the forwards", "microbatches in the order of their numbers",
        ("inputs[m] if inputs is not None else", "inputs[len(left)] if inputs is not None else"))  # fmt: skip
changed("run_schedule", "one microbatch through the whole pipeline at a time", "the schedule is not followed",
        ("for step in steps(schedule):", """kinds = (Recv, Forward, Send, RecvGrad, Backward, SendGrad)
    order = {kind: place for place, kind in enumerate(kinds)}
    schedule = sorted(schedule, key=lambda record: (record.microbatch, order[type(record)]))
    for step in ([record] for record in schedule):"""))  # fmt: skip
changed("run_schedule", "all forwards, then all backwards, whatever the schedule", "the schedule is not followed",
        ("for step in steps(schedule):", """backward = (RecvGrad, Backward, SendGrad)
    schedule = [r for r in schedule if not isinstance(r, backward)] + [r for r in schedule if isinstance(r, backward)]
    for step in steps(schedule):"""))  # fmt: skip
changed(
    "run_schedule",
    "keeps all outputs",
    "keeps what it no longer needs",
    ("left.pop(m), gradients", "left[m], gradients"),
)
changed("run_schedule", "sends a view", "not contiguous", ("left[m].detach().contiguous()", "left[m].detach()"))
changed(
    "run_schedule",
    "posts an empty batch",
    "empty batch",
    ("dist.batch_isend_irecv(batch) if batch else []", "dist.batch_isend_irecv(batch)"),
)
changed(
    "run_schedule",
    "peers of the world",
    "peers taken as ranks of the world",
    ("group_peer=record.peer", "peer=record.peer"),
)
changed("run_schedule", "the last stage waits for a gradient", "waits for a message that nobody sends",
        ("            elif isinstance(record, Backward):\n", """            elif isinstance(record, Backward):
                if targets is not None and dist.get_world_size(group) > 1:
                    dist.recv(torch.zeros(()), group_src=0, group=group)
"""))  # fmt: skip
changed("run_schedule", "one blocking message at a time", "blocking sends face each other",
        ("        for work in dist.batch_isend_irecv(batch) if batch else []:\n            work.wait()\n",
         """        for each in sorted(batch, key=lambda each: each.op is dist.irecv):
            call = dist.send if each.op is dist.isend else dist.recv
            call(each.tensor, each.peer, group=group)
"""))  # fmt: skip
changed(
    "run_schedule",
    "a barrier after every step",
    "calls a collective",
    ("            work.wait()\n", "            work.wait()\n        dist.barrier(group)\n"),
)
changed("run_schedule", "weighs by float32", "counted in float32",
        (SCALE, " * (torch.tensor(sizes, dtype=torch.float32)[m] / sum(sizes)).double()"))  # fmt: skip
changed("run_schedule", "the loss keeps its graph", "the loss drags its graph along",
        ("total = left[m].detach() if total is None else total + left[m].detach()",
         "total = left[m] if total is None else total + left[m]"))  # fmt: skip
changed("run_schedule", "scaled again at the end", "scaled twice or in another place", (SCALE, SCALE + " / len(sizes)"))

# ---- best_microbatches

BEST = "return min(range(1, num_samples + 1), key=lambda count: step_seconds(num_stages, count, batch_seconds, overhead_s))"  # noqa: E501
changed("best_microbatches", "as many as possible", "as many as there are samples", (BEST, "return num_samples"))
changed(
    "best_microbatches", "four times the stages", "the rule of thumb", (BEST, "return min(4 * num_stages, num_samples)")
)
changed(
    "best_microbatches",
    "one number too few",
    "the last number left out",
    ("range(1, num_samples + 1)", "range(1, max(num_samples, 2))"),
)
changed("best_microbatches", "returns the time", "the time instead of the number",
        (BEST, "return min(step_seconds(num_stages, m, batch_seconds, overhead_s) for m in range(1, num_samples + 1))"))  # fmt: skip  # noqa: E501

# ---- recompute

changed("recompute", "calls torch's own", "calls the library",
        ("    parameters = [parameter", "    from torch.utils.checkpoint import checkpoint\n\n    return checkpoint(module, x, use_reentrant=False)\n    parameters = [parameter"))  # fmt: skip  # noqa: E501
changed(
    "recompute",
    "just calls the module",
    "everything is kept",
    ("    return Recompute.apply(x, *parameters)", "    return module(x)"),
)
changed("recompute", "parameters not handed over", "no gradient without x",
        ("    return Recompute.apply(x, *parameters)", "    return Recompute.apply(x)"),
        ("            return tuple(found) if x.requires_grad else (None, *found)",
         "            for parameter, each in zip(parameters, found[1:]):\n                parameter.grad = each\n            return found[0]"))  # fmt: skip  # noqa: E501
changed("recompute", "draws anew", "other random numbers", ("            torch.set_rng_state(ctx.rng_state)\n", ""))
changed(
    "recompute",
    "leaves the old state behind",
    "the random state is left changed",
    ("            torch.set_rng_state(after)\n", ""),
)
changed(
    "recompute",
    "no gradient for x",
    "gradients missing",
    ("return tuple(found) if x.requires_grad else", "return (None, *found[1:]) if x.requires_grad else"),
)
changed("recompute", "leaves the buffers as they are", "BatchNorm counts twice",
        ("                buffer.copy_(before)\n", "                pass\n"))  # fmt: skip
changed("recompute", "unused not allowed", "unused parameters", (", allow_unused=True", ""))
changed("recompute", "frozen parameters too", "frozen parameters", (" if parameter.requires_grad]", "]"))

# ---- data_and_pipeline

changed(
    "data_and_pipeline",
    "forgets the column",
    "no sum over the column",
    ("        dist.all_reduce(tensor, group=data)\n", ""),
    ("    dist.all_reduce(everybody, group=data)\n", ""),
)
changed("data_and_pipeline", "every parameter", "a parameter without a gradient", (" if p.grad is not None]", "]"))
changed("data_and_pipeline", "weighs by float32", "counted in float32",
        ("dtype=torch.float64", "dtype=torch.float32"), ("share = own / everybody.item()", "share = own / everybody"))  # fmt: skip  # noqa: E501
changed("data_and_pipeline", "adds up", "summed, not weighed", ("        tensor *= share\n", ""))
changed(
    "data_and_pipeline",
    "averages the pipelines",
    "mean over the pipelines",
    ("share = own / everybody.item()", 'share = 1 / mesh["data"].size()'),
)
changed("data_and_pipeline", "its own loss", "the loss of one pipeline", (" + ([] if loss is None else [loss])", ""))
changed(
    "data_and_pipeline",
    "sums along the pipeline",
    "the wrong axis",
    ('data = mesh.get_group("data")', 'data = mesh.get_group("pipe")'),
)

# ---- interleaved

changed("interleaved", "all microbatches through each chunk", "chunk after chunk",
        ("chunk, microbatch = place // num_stages, group * num_stages + place % num_stages", "chunk, microbatch = divmod(number, num_microbatches)"))  # fmt: skip  # noqa: E501
changed(
    "interleaved",
    "backward begins at chunk 0",
    "backward with the first chunk first",
    ("num_chunks - 1 - chunk", "chunk"),
)
changed(
    "interleaved",
    "1F1B's warm-up",
    "the warm-up of plain 1F1B",
    ("2 * (num_stages - 1 - stage) + (num_chunks - 1) * num_stages", "num_stages - 1 - stage"),
)
changed("interleaved", "all forwards first", "all forwards first", ("warmup = min(", "warmup = max("))
changed("interleaved", "no cool-down", "work left out", (" + backwards[total - warmup :]", ""))

# ---- zero_bubble

changed(
    "zero_bubble", "no delay", "weights right after the input", ("record.microbatch >= stage", "record.microbatch >= 0")
)
changed(
    "zero_bubble",
    "all weights at the end",
    "all weights at the end",
    ("record.microbatch >= stage", "record.microbatch > num_microbatches"),
)
changed(
    "zero_bubble",
    "delay of the other end",
    "put off by the wrong number",
    ("record.microbatch >= stage", "record.microbatch >= num_stages - 1 - stage"),
)
changed(
    "zero_bubble",
    "the last weights forgotten",
    "work left out",
    ("return order + [BackwardWeight(microbatch) for microbatch in range(weights, num_microbatches)]", "return order"),
)

# ---- run_orders

FOUND = "weight.grad = found if weight.grad is None else weight.grad + found"
HALVES = "if isinstance(record, BackwardChunk):"
changed("run_orders", "the layer does all at once", "weights' gradients at once", ("later.append(rest)", "rest()"))
changed("run_orders", "the last gradient wins", "overwritten, not added", (FOUND, "weight.grad = found"))
changed("run_orders", "no weights for chunks", "the weights' half is never done", (HALVES, "if False:"))
changed("run_orders", "no leaf", "no gradient for what entered", (".requires_grad_()", ""))
changed("run_orders", "the loss as it is", "loss not scaled", (SCALE, ""))
changed("run_orders", "divided by M", "mean of means", (SCALE, " / len(sizes)"))
changed("run_orders", "both halves together", "weights when they were put off",
        (HALVES, "if True:"), ("for rest in put_off.pop(m):", "for rest in put_off.pop(m, []):"))  # fmt: skip
changed("run_orders", "kept by microbatch", "chunks share a place",
        ('chunk, m = key = getattr(record, "chunk", 0), record.microbatch',
         'chunk, m = getattr(record, "chunk", 0), record.microbatch\n        key = m'))  # fmt: skip
changed(
    "run_orders",
    "nobody waits for sends",
    "read before it was there",
    ("    for work in sent:\n        work.wait()\n", ""),
)
