"""Data-parallel training with a trainer class and a snapshot, as PyTorch's tutorials write it."""

import argparse
import json
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Points(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.data = [(torch.rand(20, generator=generator), torch.rand(1, generator=generator)) for _ in range(size)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


def setup():
    if torch.accelerator.is_available():
        rank = int(os.environ["LOCAL_RANK"])
        device = torch.device(f"{torch.accelerator.current_accelerator()}:{rank}")
        torch.accelerator.set_device_index(rank)
        dist.init_process_group(backend="nccl", device_id=device)
    else:
        dist.init_process_group(backend="gloo")


class Trainer:
    def __init__(self, model, loader, optimizer, save_every, snapshot_path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.on_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda", self.local_rank) if self.on_gpu else torch.device("cpu")
        self.model = model.to(self.device)
        self.loader, self.optimizer = loader, optimizer
        self.save_every, self.snapshot_path = save_every, snapshot_path
        self.first_epoch = 0
        self.losses = []
        if os.path.exists(snapshot_path):
            snapshot = torch.load(snapshot_path, map_location=self.device)
            self.model.load_state_dict(snapshot["model"])
            self.first_epoch = snapshot["epoch"]
            print(f"resuming at epoch {self.first_epoch}")
        self.model = DistributedDataParallel(self.model, device_ids=[self.local_rank] if self.on_gpu else None)

    def run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def run_epoch(self, epoch):
        print(f"[{self.device}] epoch {epoch}, {len(self.loader)} batches")
        self.loader.sampler.set_epoch(epoch)
        for source, targets in self.loader:
            self.run_batch(source.to(self.device), targets.to(self.device))

    def train(self, epochs):
        for epoch in range(self.first_epoch, epochs):
            self.run_epoch(epoch)
            if dist.get_rank() == 0 and (epoch + 1) % self.save_every == 0:
                torch.save({"model": self.model.module.state_dict(), "epoch": epoch + 1}, self.snapshot_path)
        dist.barrier()


def main(epochs, save_every, batch_size, snapshot_path):
    setup()
    torch.manual_seed(7)
    data = Points(64)
    model = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(
        data,
        batch_size=batch_size,
        pin_memory=torch.cuda.is_available(),
        shuffle=False,
        sampler=DistributedSampler(data),
    )
    trainer = Trainer(model, loader, optimizer, save_every, snapshot_path)
    trainer.train(epochs)
    weights = float(sum(p.detach().double().sum() for p in model.parameters()))
    print("RESULT " + json.dumps({"losses": trainer.losses, "weights": weights}))
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="simple distributed training job")
    parser.add_argument("epochs", type=int)
    parser.add_argument("save_every", type=int)
    parser.add_argument("--batch_size", default=8, type=int)
    parser.add_argument("--snapshot", default="snapshot.pt")
    args = parser.parse_args()
    main(args.epochs, args.save_every, args.batch_size, args.snapshot)
