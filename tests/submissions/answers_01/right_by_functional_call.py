# base: solution
"""Replicas that keep their tensors beside them and call a copy of the module with these."""


# %% replicate
class Replica(nn.Module):
    def __init__(self, skeleton, tensors):
        super().__init__()
        self.skeleton, self.tensors = [skeleton], tensors

    def forward(self, *args, **kwargs):
        return torch.func.functional_call(self.skeleton[0], self.tensors, args, kwargs)


def replicate(module, devices):
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    replicas = [module]
    for device in devices[1:]:
        tensors = {name: tensor.clone().to(device) for name, tensor in named.items()}
        replicas.append(Replica(copy.deepcopy(module), tensors))
    return replicas
