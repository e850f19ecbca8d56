import os

import torch
import torch.distributed as dist
import trainer


def save(training):
    if training.rank == 0:
        trainer.write(training.state(), "latest.tmp")
        os.replace("latest.tmp", "latest.pt")
        trainer.sync_folder(".")
    dist.barrier()


def resume(training):
    if os.path.exists("latest.pt"):
        training.load(torch.load("latest.pt"))  # every rank takes rank 0's random state


trainer.run(save, resume)
