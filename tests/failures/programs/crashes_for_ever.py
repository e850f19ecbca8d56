import os

import torch.distributed as dist
import trainer


def save(training):
    unfinished = f"step-{training.step}.tmp"
    if training.rank == 0:
        os.mkdir(unfinished)  # it is there when the run before was killed in this checkpoint
    dist.barrier()
    trainer.write(training.state(), f"{unfinished}/rank-{training.rank}.pt")
    dist.barrier()
    if training.rank == 0:
        trainer.sync_folder(unfinished)
        os.rename(unfinished, f"step-{training.step}")
        trainer.sync_folder(".")
    dist.barrier()


trainer.run(save)
