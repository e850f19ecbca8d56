# base: solution
"""Interleaved 1F1B, by its formula, as the shortest step; deadlocks by advancing everybody at once."""


# %% shortest_step
def shortest_step(num_stages, num_microbatches, most_held):
    if num_microbatches % num_stages or most_held < 1.5 * num_stages:
        ahead = [[f"F{m}" for m in range(num_stages - stage)] for stage in range(num_stages)]
        for stage, order in enumerate(ahead):
            for m in range(num_microbatches):
                order += [f"I{m}"] + [f"W{m - stage}"] * (m >= stage)
                order += [f"F{m + num_stages - stage}"] * (m + num_stages - stage < num_microbatches)
            order += [f"W{m}" for m in range(num_microbatches - stage, num_microbatches)]
        return "one", ahead
    orders = []
    for stage in range(num_stages):
        order = interleaved(stage, num_stages, num_microbatches, 2)
        letters = {"ForwardChunk": "F", "BackwardChunk": "B"}
        orders.append([f"{letters[type(each).__name__]}{each.microbatch}.{each.chunk}" for each in order])
    return "round", orders
