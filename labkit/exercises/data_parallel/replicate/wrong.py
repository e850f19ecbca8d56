"""Wrong answers to replicate, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong


REPLICATE = """
def replicate(module, devices):
    replicas = []
    for number, device in enumerate(devices):
        {memo}
        replicas.append(copy.deepcopy(module, memo))
    return replicas
"""


def wrong_replicate(name: str, mistake: str, memo: str) -> None:
    wrong(name, mistake, REPLICATE.format(memo=memo))


TENSORS = "[*module.parameters(), *module.buffers()]"
wrong(
    "a bare deepcopy",
    "detached",
    "def replicate(module, devices):\n    return [copy.deepcopy(module).to(device) for device in devices]",
)
wrong_replicate(
    "under no_grad",
    "detached",
    f"""with torch.no_grad():
            memo = {{id(t): nn.Parameter(t.to(device, copy=True), t.requires_grad) if isinstance(t, nn.Parameter)
                    else t.to(device, copy=number > 0) for t in {TENSORS}}}""",
)
wrong(
    "the module and deep copies",
    "only replica 0's gradients",
    """
def replicate(module, devices):
    return [module] + [copy.deepcopy(module).to(device) for device in devices[1:]]
""",
)
wrong_replicate(
    "replica 0 detached",
    "only the others' gradients",
    f"""memo = {{id(t): t.to(device, copy=number > 0) for t in {TENSORS}}}
        if number == 0:
            memo = {{id(b): b for b in module.buffers()}}""",
)
wrong(
    "scaled by the number of replicas",
    "averaged",
    """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, count):
        ctx.count = count
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / ctx.count, None


def replicate(module, devices):
    replicas = []
    for number, device in enumerate(devices):
        memo = {id(p): Scaled.apply(p, len(devices)).to(device) for p in module.parameters()}
        memo |= {id(b): b.to(device, copy=number > 0) for b in module.buffers()}
        replicas.append(copy.deepcopy(module, memo))
    return replicas
""",
)
wrong(
    "by name",
    "the shared weight lost",
    """
def replicate(module, devices):
    replicas = []
    for number, device in enumerate(devices):
        replica = copy.deepcopy(module, {id(b): b.to(device, copy=number > 0) for b in module.buffers()}).to(device)
        for name, parameter in module.named_parameters():
            path, _, last = name.rpartition(".")
            owner = replica.get_submodule(path)
            del owner._parameters[last]
            setattr(owner, last, parameter.to(device, copy=True))
        replicas.append(replica)
    return replicas
""",
)
wrong_replicate(
    "buffers not copied",
    "buffers of all replicas",
    """memo = {id(p): p.to(device, copy=number > 0) for p in module.parameters()}
        memo |= {id(b): b.to(device) for b in module.buffers()}""",
)
wrong_replicate(
    "copies for replica 0 too",
    "buffers of nobody",
    f"memo = {{id(t): t.to(device, copy=True) for t in {TENSORS}}}",
)
wrong_replicate(
    "the last replica's buffers",
    "another replica's buffers",
    """memo = {id(p): p.to(device, copy=number > 0) for p in module.parameters()}
        memo |= {id(b): b.to(device, copy=number < len(devices) - 1) for b in module.buffers()}""",
)
wrong_replicate(
    "parameters not copied",
    "the same memory",
    """memo = {id(p): p.to(device) for p in module.parameters()}
        memo |= {id(b): b.to(device, copy=number > 0) for b in module.buffers()}""",
)
wrong_replicate(
    "clones stay where they are",
    "not on its device",
    f"memo = {{id(t): t.clone() if number else t for t in {TENSORS}}}",
)
WRONG.changed(
    "leaves its copies in the module",
    "the module changed",
    (
        "    tensors = [",
        """    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(parameter.detach().clone()))
    tensors = [""",
    ),
)
WRONG.changed("returns nothing", "nothing returned", ("return replicas", "return None"))
WRONG.changed("returns within the loop", "wrong length", ("    return replicas", "        return replicas"))
WRONG.right(
    "all copies of a tensor are pieces of one",
    """
def replicate(module, devices):
    memos = [{} for _ in devices]
    for tensor in [*module.parameters(), *module.buffers()]:
        copies = tensor.expand(len(devices), *tensor.shape).clone().unbind(0)
        for memo, one, device in zip(memos, copies, devices):
            memo[id(tensor)] = one.to(device)
    return [module, *(copy.deepcopy(module, memo) for memo in memos[1:])]
""",
)
wrong(
    "hooks that overwrite",
    "only the others' gradients",
    """
def replicate(module, devices):
    replicas = [module]
    for device in devices[1:]:
        replica = copy.deepcopy(module).to(device)
        for mine, its in zip(module.parameters(), replica.parameters()):
            its.register_post_accumulate_grad_hook(lambda its, mine=mine: setattr(mine, "grad", its.grad.clone()))
        replicas.append(replica)
    return replicas
""",
)
WRONG.right(
    "replica 0 is the module itself",
    """
def replicate(module, devices):
    tensors = [*module.parameters(), *module.buffers()]
    replicas = [module]
    for device in devices[1:]:
        replicas.append(copy.deepcopy(module, {id(tensor): tensor.to(device, copy=True) for tensor in tensors}))
    return replicas
""",
)
wrong(
    "one memo for all",
    "one module for several replicas",
    """
def replicate(module, devices):
    tensors = [*module.parameters(), *module.buffers()]
    memo = {id(tensor): tensor.to(devices[-1], copy=True) for tensor in tensors}
    return [module, *[copy.deepcopy(module, memo).to(device) for device in devices[1:]]]
""",
)
wrong(
    "one copy for all others",
    "the same memory",
    """
def replicate(module, devices):
    tensors = [*module.parameters(), *module.buffers()]
    copies = {id(tensor): tensor.to(devices[-1], copy=True) for tensor in tensors}
    others = [copy.deepcopy(module, {key: each.to(device) for key, each in copies.items()}) for device in devices[1:]]
    return [module, *others]
""",
)
WRONG.changed(
    "puts them into training",
    "another mode",
    ("replicas.append(copy.deepcopy(module, memo))", "replicas.append(copy.deepcopy(module, memo).train())"),
)
WRONG.changed(
    "the module's own parameters alone",
    "some parameters left out",
    ("[*module.parameters(), *module.buffers()]", "[*module.parameters(recurse=False), *module.buffers()]"),
)
WRONG.changed(
    "moves the replica as a whole",
    "moved as a whole module",
    ("tensor.to(device, copy=number > 0)", "tensor.clone() if number > 0 else tensor"),
    ("copy.deepcopy(module, memo)", "copy.deepcopy(module, memo).to(device)"),
)
WRONG.wrong(
    "parameters that are None are left out",
    "a replica lacks a name",
    """
def replicate(module, devices):
    replicas = [module]
    for device in devices[1:]:
        replica = copy.copy(module)
        parameters = {name: each for name, each in module._parameters.items() if each is not None}
        replica._parameters = {name: each.to(device, copy=True) for name, each in parameters.items()}
        replicas.append(replica)
    return replicas
""",
)
