"""The course's GPT, small, saved and resumed by Lightning's own ModelCheckpoint and ckpt_path."""

import warnings

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from labkit.models import GPT, Addition

STEPS, SAVE_EVERY = 4, 2
warnings.simplefilter("ignore")


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = GPT(num_layers=1, width=16, num_heads=2)

    def training_step(self, batch, number):
        tokens, targets = Addition().batch(
            self.trainer.global_step, 8, rank=self.trainer.global_rank, world_size=self.trainer.world_size
        )
        logits = self.model(tokens)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


saves = ModelCheckpoint("saves", every_n_train_steps=SAVE_EVERY, save_top_k=1, save_last=True)
trainer = pl.Trainer(
    max_steps=STEPS, accelerator="cpu", devices=2, strategy="ddp", callbacks=[saves], logger=False,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
batches = torch.utils.data.DataLoader(torch.zeros(64, 1), batch_size=1, shuffle=False)
trainer.fit(Module(), batches, ckpt_path="last")
