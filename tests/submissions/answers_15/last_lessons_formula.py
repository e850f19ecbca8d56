# base: solution
# loses: layer_time, stage_memory, exposed_gradients, step_time, choose_plan
"""Whole products, one microbatch in flight, gradients added up, and last lesson's formula for the step and the plan."""


# %% layer_time
def layer_seconds(job, plan):
    forward = 2 * job.layer_params * plan.microbatch * job.num_tokens / plan.tensor / job.flops
    return forward, 2 * forward


# %% stage_memory
def stage_bytes(job, plan):
    params = job.num_layers * job.layer_params / plan.pipeline / plan.tensor
    return [18 * params] * plan.pipeline


# %% exposed_gradients
def exposed_seconds(computing, takes):
    return max(0.0, sum(takes) - sum(computing))


# %% step_time
def step_seconds(job, plan):
    return cost(job, plan.mesh(job)).seconds


# %% choose_plan
def choose_plan(job):
    fits = [plan for plan in every_plan(job) if cost(job, plan.mesh(job)).peak_bytes <= 0.7 * job.memory_bytes]
    return min(fits, key=lambda plan: cost(job, plan.mesh(job)).seconds)
