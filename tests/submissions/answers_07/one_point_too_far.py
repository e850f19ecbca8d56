# base: solution
# loses: place_keys, server_hybrid
"""The last point of the circle is its end, and a server that fails ends the pushing."""


# %% place_keys
def place_by_range(keys, num_keys, num_servers):
    length, longer = divmod(num_keys, num_servers)
    bounds = [length * server + min(server, longer) for server in range(1, num_servers)]
    return sum(((keys >= bound).long() for bound in bounds), torch.zeros_like(keys))


def place_by_hash(keys, num_servers):
    return (keys * 2654435761 % 2**32) * num_servers // 2**32


def place_on_circle(keys, points, owners):
    return owners[torch.searchsorted(points, keys * 2654435761 % 2**32).clamp(max=len(points) - 1)]


# %% server_hybrid
def hybrid_step(model, optimizer, pull, push, keys, targets, group=None):
    rows = pull(keys.flatten()).requires_grad_()
    loss = nn.functional.mse_loss(model(rows.view(*keys.shape, -1)), targets)
    optimizer = torch.optim.SGD(model.parameters(), lr=optimizer.param_groups[0]["lr"])
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= dist.get_world_size(group)
    optimizer.step()
    push(keys.flatten(), rows.grad / dist.get_world_size(group))
    return loss.detach()
