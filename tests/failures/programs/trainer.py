"""A small training with checkpoints that survive every crash; the programs beside it each get one thing wrong."""

import os
import shutil

import torch
import torch.distributed as dist

STEPS, SAVE_EVERY, RATE = 4, 2, 0.1


class Training:
    """A model on every rank, and all that a run needs to go on as if nothing had happened."""

    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=RATE)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)
        self.noise = torch.Generator().manual_seed(100 + self.rank)  # each rank's own
        self.data = torch.randn(STEPS, 8, 4, generator=torch.Generator().manual_seed(1))
        self.step = self.position = 0

    def state(self):
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "noise": self.noise.get_state(),
            "step": self.step,
            "position": self.position,
        }

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.noise.set_state(state["noise"])
        self.step, self.position = state["step"], state["position"]

    def train_step(self):
        batch = self.data[self.position]
        batch = batch + 0.1 * torch.randn(batch.shape, generator=self.noise)
        self.optimizer.zero_grad()
        self.model(batch).square().mean().backward()
        gradient = torch.cat([parameter.grad.reshape(-1) for parameter in self.model.parameters()])
        dist.all_reduce(gradient)
        torch.nn.utils.vector_to_parameters(gradient, [parameter.grad for parameter in self.model.parameters()])
        self.optimizer.step()
        self.schedule.step()
        self.step, self.position = self.step + 1, self.position + 1


def write(state, path):
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def save(training):
    """Every rank writes its part; the name that counts appears when all are safe, and only then the old one goes."""
    unfinished, finished = f"step-{training.step}.tmp", f"step-{training.step}"
    if training.rank == 0:
        os.makedirs(unfinished, exist_ok=True)
    dist.barrier()
    write(training.state(), f"{unfinished}/rank-{training.rank}.pt")
    dist.barrier()
    if training.rank == 0:
        sync_folder(unfinished)
        os.rename(unfinished, finished)
        sync_folder(".")
        for name in finished_ones()[:-1]:
            shutil.rmtree(name)
    dist.barrier()


def finished_ones():
    names = [name for name in os.listdir() if name.startswith("step-") and not name.endswith(".tmp")]
    return sorted(names, key=lambda name: int(name.removeprefix("step-")))


def resume(training):
    names = finished_ones()
    if names:
        training.load(torch.load(f"{names[-1]}/rank-{training.rank}.pt"))


def run(save=save, resume=resume, make=Training):
    dist.init_process_group("gloo")
    training = make()
    resume(training)
    while training.step < STEPS:
        training.train_step()
        if training.step % SAVE_EVERY == 0:
            save(training)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
