# base: solution
"""Two halves of a layer; what is left of a bucket carried on; one sum for the pipeline; the three best plans and then the first."""


# %% layer_time
def layer_seconds(job, plan):
    rows, h, t = plan.microbatch * job.num_tokens, job.width, plan.tensor
    out = product_seconds(job, rows, h, 3 * h // t) + product_seconds(job, rows, h // t, h)
    mlp = product_seconds(job, rows, h, 4 * h // t) + product_seconds(job, rows, 4 * h // t, h)
    one_way = out + mlp + 4 * scatter_seconds(job, plan, "tensor", rows * h * 2)
    return [one_way, one_way * (2 if plan.recompute else 1) + out + mlp]


# %% exposed_gradients
def exposed_seconds(computing, takes):
    left = 0.0
    for computed, travels in zip(computing, takes):
        left = max(0.0, left - computed) + travels
    return left


# %% step_time
def step_seconds(job, plan):
    one = sum(layer_seconds(job, plan)) * job.num_layers / plan.pipeline
    slow = one + sum(head_seconds(job, plan))
    m, p = plan.num_microbatches(job), plan.pipeline
    rest = gradient_seconds(job, plan, layer_seconds(job, plan)[1])
    return m * slow + (p - 1) * (one + 2 * hop_seconds(job, plan)) + rest


# %% choose_plan
def choose_plan(job):
    def room(plan):
        return job.memory_bytes - max(stage_bytes(job, plan))

    by_time = sorted(every_plan(job), key=lambda plan: step_seconds(job, plan))
    return next(plan for plan in by_time if room(plan) >= 0)
