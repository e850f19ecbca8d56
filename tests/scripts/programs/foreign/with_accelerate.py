"""Training with Accelerate: it prepares model, optimizer and data, gathers a metric, saves and loads its state."""

import json
import os
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

folder = sys.argv[1]
accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=2)
set_seed(5)
data = TensorDataset(torch.randn(48, 6), torch.randn(48, 1))
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
losses = []
for _ in range(2):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    accelerator.save_state(os.path.join(folder, "state"))
accelerator.wait_for_everyone()
accelerator.load_state(os.path.join(folder, "state"))
total = float(sum(p.detach().double().sum() for p in model.parameters()))
found = {
    "losses": losses,
    "weights": total,
    "rank": accelerator.process_index,
    "size": accelerator.num_processes,
    "main": accelerator.is_main_process,
}
print("RESULT " + json.dumps(found))
accelerator.end_training()
