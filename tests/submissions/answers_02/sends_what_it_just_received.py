# base: solution
# loses: ring_plan
"""The first step already sends the chunk that it receives."""

# %% ring_plan
def ring_plan(rank, world_size):
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    plan = []
    for step in range(world_size - 1):
        plan.append(Send(step, (rank - step - 1) % world_size, right))
        plan.append(Recv(step, (rank - step - 1) % world_size, left))
        plan.append(Reduce(step, (rank - step - 1) % world_size))
    for turn in range(world_size - 1):
        step = world_size - 1 + turn
        plan.append(Send(step, (rank + 1 - turn) % world_size, right))
        plan.append(Recv(step, (rank - turn) % world_size, left))
    return plan
