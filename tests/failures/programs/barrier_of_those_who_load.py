import os

import torch
import torch.distributed as dist
import trainer


def save(training):
    trainer.write(training.state(), f"rank-{training.rank}.tmp")
    os.replace(f"rank-{training.rank}.tmp", f"rank-{training.rank}.pt")
    trainer.sync_folder(".")


def resume(training):
    loaded = dist.new_group()
    if os.path.exists(f"rank-{training.rank}.pt"):
        training.load(torch.load(f"rank-{training.rank}.pt"))
        dist.barrier(loaded)  # a rank that died before it had saved never comes here


trainer.run(save, resume)
