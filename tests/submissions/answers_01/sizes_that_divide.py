# base: solution
"""Right when the batch divides by the number of devices: what is left over is dropped, and means are averaged."""


# %% scatter
def scatter(value, devices):
    if isinstance(value, Tensor):
        size = len(value) // len(devices)
        return [value[n * size : (n + 1) * size].to(device) for n, device in enumerate(devices)]
    if isinstance(value, (tuple, list)) and value:
        return [type(value)(parts) for parts in zip(*(scatter(item, devices) for item in value))]
    if isinstance(value, dict) and value:
        parts = zip(*(scatter(item, devices) for item in value.values()))
        return [dict(zip(value, each)) for each in parts]
    return [value] * len(devices)


# %% whole_batch_loss
def whole_batch_loss(losses, counts):
    return losses.mean()


# %% step_plan
def step_plan(sizes, input_bytes, output_bytes, model_bytes, gradient_bytes):
    size, others = sizes[0], range(1, len(sizes))
    return (
        [Move("inputs", 0, d, size * input_bytes) for d in others]
        + [Move("model", 0, d, model_bytes) for d in others]
        + [Move("outputs", d, 0, size * output_bytes) for d in others]
        + [Move("output gradients", 0, d, size * output_bytes) for d in others]
        + [Move("model gradients", d, 0, gradient_bytes) for d in others]
    )


# %% shares_by_speed
def shares_by_speed(num_samples, speeds):
    return [num_samples * speed // sum(speeds) for speed in speeds]


def slowest_seconds(shares, speeds):
    return max(share / speed for share, speed in zip(shares, speeds))
