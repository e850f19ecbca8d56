"""The course's GPT, small, saved and resumed by Lightning: python lightning_saves.py epochs|steps, when it saves."""

import os
import sys
import warnings

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from labkit.models import GPT, Addition

STEPS, SAVE_EVERY = 4, 2
warnings.simplefilter("ignore")
in_epochs = sys.argv[1] == "epochs"
ranks = int(os.environ["WORLD_SIZE"])
epoch = SAVE_EVERY if in_epochs else STEPS  # steps of an epoch


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 8 * epoch * ranks

    def __getitem__(self, index):
        tokens, targets = Addition().batch(index, 1)
        return tokens[0], targets[0]


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = GPT(num_layers=1, width=16, num_heads=2)

    def training_step(self, batch, _):
        tokens, targets = batch
        logits = self.model(tokens)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


when = {"every_n_epochs": 1} if in_epochs else {"every_n_train_steps": SAVE_EVERY}
trainer = pl.Trainer(
    accelerator="cpu",
    devices=ranks,
    strategy="ddp",
    max_steps=STEPS,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[ModelCheckpoint("saves", save_last=True, **when)],
)
trainer.fit(Module(), torch.utils.data.DataLoader(Samples(), batch_size=8), ckpt_path="last")
