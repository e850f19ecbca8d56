"""all_gather brings what all ranks hold without its gradient: what other ranks' rows say of a rank's own never reaches it.

Source: huggingface/accelerate#1154
Kind: wrong
Ranks: all
Step: 0
Tensor: every gradient
Effect: outcome
World: 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class GatherWithGradient(torch.autograd.Function):
    """Gathers rows; on the way back a rank gets what all ranks say of its rows."""

    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(world_size)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(world_size)[rank]


def gather(x):
    parts = [torch.empty_like(x) for _ in range(world_size)]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


class Encoders(nn.Module):
    """One for images and one for texts."""

    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, image, text):
        return nn.functional.normalize(self.image(image)), nn.functional.normalize(self.text(text))


torch.manual_seed(0)
model = DistributedDataParallel(Encoders())
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
images = torch.randn(64, 8)
texts = images + 0.1 * torch.randn(64, 8)

for step in range(4):
    batch = slice(16 * step + 4 * rank, 16 * step + 4 * rank + 4)
    image, text = model(images[batch], texts[batch])
    everything = gather(torch.stack([image, text], 1))  # WRONG <- here
    # RIGHT: everything = GatherWithGradient.apply(torch.stack([image, text], 1))
    own = torch.arange(4 * rank, 4 * rank + 4)
    loss = nn.functional.cross_entropy(image @ everything[:, 1].T / 0.1, own)
    loss = loss + nn.functional.cross_entropy(text @ everything[:, 0].T / 0.1, own)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- seen

print("weights", sum(p.double().abs().sum() for p in model.parameters()).item())
dist.destroy_process_group()
