# base: solution
"""Right: every rank gathers all gradients and takes their mean."""


# %% average_gradients
def average_gradients(module):
    for parameter in module.parameters():
        if parameter.requires_grad:
            mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, mine.contiguous())
            parameter.grad = torch.stack(parts).mean(0)
