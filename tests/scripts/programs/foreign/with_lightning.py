"""Training with Lightning: a module, a trainer with two devices, validation, a checkpoint."""

import json
import os
import sys
import warnings

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
        self.losses = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main():
    pl.seed_everything(3, verbose=False)
    data = TensorDataset(torch.randn(32, 6), torch.randn(32, 1))
    model = Model()
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=sys.argv[1],
    )
    trainer.fit(model, DataLoader(data, batch_size=4, num_workers=0), DataLoader(data, batch_size=8, num_workers=0))
    total = float(sum(p.detach().double().sum() for p in model.parameters()))
    found = {"losses": model.losses, "weights": total, "val": float(trainer.callback_metrics["val_loss"])}
    print("RESULT " + json.dumps(found | {"rank": trainer.global_rank, "size": trainer.world_size}))


if __name__ == "__main__":
    main()
