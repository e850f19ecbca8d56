"""The course's GPT, small, with checkpoints as people write them: python gpt_saves.py in_place|renamed|synced|dcp."""

import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from labkit.models import GPT, Addition

STEPS, SAVE_EVERY = 4, 2
how = sys.argv[1]
dist.init_process_group("gloo")
warnings.simplefilter("ignore")
rank = dist.get_rank()
model = GPT(num_layers=1, width=16, num_heads=2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def sync_folder(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def save(step):
    if how == "dcp":
        dcp.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id=f"step-{step}")
        if rank == 0:
            with open("latest.tmp", "w") as file:
                file.write(str(step))
                file.flush()
                os.fsync(file.fileno())
            os.replace("latest.tmp", "latest")
            sync_folder(".")
    elif rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        if how == "in_place":
            torch.save(state, "ckpt.pt")
        else:
            with open("ckpt.tmp", "wb") as file:
                torch.save(state, file)
                if how == "synced":
                    os.fsync(file.fileno())
            os.replace("ckpt.tmp", "ckpt.pt")
            if how == "synced":
                sync_folder(".")
    dist.barrier()


def load():
    if how == "dcp":
        if not os.path.exists("latest"):
            return 0
        with open("latest") as file:
            step = int(file.read())
        for parameter in model.parameters():  # an optimizer has no state before its first step
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        dcp.load(state, checkpoint_id=f"step-{step}")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return step
    if not os.path.exists("ckpt.pt"):
        return 0
    state = torch.load("ckpt.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


for step in range(load(), STEPS):
    tokens, targets = Addition().batch(step, 8, rank=rank, world_size=dist.get_world_size())
    optimizer.zero_grad()
    logits = model(tokens)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    if (step + 1) % SAVE_EVERY == 0:
        save(step + 1)
dist.barrier()
dist.destroy_process_group()
