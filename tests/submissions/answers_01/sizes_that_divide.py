# base: solution
# loses: scatter_and_gather, step_plan, shares_by_speed
"""Right when the batch divides by the number of devices: what is left over is dropped."""


# %% scatter_and_gather
def scatter(batch, devices):
    size = len(next(iter(batch.values()))) // len(devices)
    return [
        {key: tensor[n * size : (n + 1) * size].to(device) for key, tensor in batch.items()}
        for n, device in enumerate(devices)
    ]


def gather(outputs, device):
    there = [output.to(device) for output in outputs]
    return torch.stack(there) if there[0].dim() == 0 else torch.cat(there)


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
