import os

import torch
import trainer


def save(training):
    name = f"rank-{training.rank}-step-{training.step}.pt"
    trainer.write(training.state(), name + ".tmp")
    os.replace(name + ".tmp", name)
    trainer.sync_folder(".")


def resume(training):
    mine = sorted(name for name in os.listdir() if name.startswith(f"rank-{training.rank}-") and name.endswith(".pt"))
    if mine:
        training.load(torch.load(mine[-1]))


trainer.run(save, resume)
