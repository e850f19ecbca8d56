"""The course's GPT, small, saved and resumed by Accelerate's own save_state and load_state."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

from labkit.models import GPT, Addition

STEPS, SAVE_EVERY = 4, 2


class Progress:
    step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


accelerator = Accelerator(
    cpu=True, project_config=ProjectConfiguration("saves", automatic_checkpoint_naming=True, total_limit=2)
)
model = GPT(num_layers=1, width=16, num_heads=2)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
progress = Progress()
accelerator.register_for_checkpointing(progress)
if os.path.isdir("saves/checkpoints") and os.listdir("saves/checkpoints"):
    accelerator.load_state()
    accelerator.project_configuration.iteration = progress.step // SAVE_EVERY
while progress.step < STEPS:
    rank, size = accelerator.process_index, accelerator.num_processes
    tokens, targets = Addition().batch(progress.step, 8, rank=rank, world_size=size)
    optimizer.zero_grad()
    logits = model(tokens)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    accelerator.backward(loss)
    optimizer.step()
    progress.step += 1
    if progress.step % SAVE_EVERY == 0:
        accelerator.save_state()
accelerator.wait_for_everyone()
accelerator.end_training()
