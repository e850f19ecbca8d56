import os

import torch
import torch.distributed as dist
import trainer


def save(training):
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, training.state())
    if training.rank == 0:
        torch.save(states, "latest.tmp")
        os.replace("latest.tmp", "latest.pt")
    dist.barrier()


def resume(training):
    if os.path.exists("latest.pt"):
        training.load(torch.load("latest.pt")[training.rank])


trainer.run(save, resume)
