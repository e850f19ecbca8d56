"""Trains the GPT: gradient accumulation, mixed precision, clipping, a schedule, checkpoints; on one device or many."""

import json
import math
import os
import sys
import time
from contextlib import nullcontext

import torch
from model import GPT, Config
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

out_dir = "out"
max_iters = 4
gradient_accumulation_steps = 4
batch_size = 4
block_size = 16
n_layer = 2
n_embd = 32
learning_rate = 1e-2
warmup_iters = 2
grad_clip = 1.0
backend = "nccl" if torch.cuda.is_available() else "gloo"
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = "float32"
compile = False
num_workers = 0
init_from = "scratch"
for arg in sys.argv[1:]:
    key, val = arg.removeprefix("--").split("=")
    globals()[key] = type(globals()[key])(eval(val) if not isinstance(globals()[key], str) else val)

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=backend)
    ddp_rank = int(os.environ["RANK"])
    ddp_local_rank = int(os.environ["LOCAL_RANK"])
    ddp_world_size = int(os.environ["WORLD_SIZE"])
    if device == "cuda":
        device = f"cuda:{ddp_local_rank}"
        torch.cuda.set_device(device)
    master_process = ddp_rank == 0
    seed_offset = ddp_rank
    assert gradient_accumulation_steps % ddp_world_size == 0
    gradient_accumulation_steps //= ddp_world_size
else:
    master_process, seed_offset, ddp_world_size, ddp_rank = True, 0, 1, 0

if master_process:
    os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
autocast = torch.amp.autocast(device_type=device_type, dtype=ptdtype)
ctx = nullcontext() if dtype == "float32" else autocast

generator = torch.Generator().manual_seed(3)
tokens = torch.randint(0, 32, (64, block_size + 1), generator=generator)
tokens[:, 1::2] = tokens[:, 0:-1:2]
dataset = TensorDataset(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
sampler = DistributedSampler(dataset, shuffle=True, drop_last=True) if ddp else None
loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=num_workers, drop_last=True)


def batches():
    epoch = 0
    while True:
        if sampler is not None:
            sampler.set_epoch(epoch)
        for x, y in loader:
            if device_type == "cuda":
                x, y = x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
            yield x, y
        epoch += 1


model = GPT(Config(block_size=block_size, n_layer=n_layer, n_embd=n_embd))
iter_num, checkpoint = 0, None
if init_from == "resume":
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location=device)
    model.load_state_dict(checkpoint["model"])
    iter_num = checkpoint["iter_num"]
model.to(device)
scaler = torch.amp.GradScaler(device_type, enabled=dtype == "float16")
optimizer = model.configure_optimizers(1e-1, learning_rate, device_type)
if checkpoint is not None:
    optimizer.load_state_dict(checkpoint["optimizer"])
if compile:
    model = torch.compile(model)
if ddp:
    model = DDP(model, device_ids=[ddp_local_rank] if device_type == "cuda" else None)
raw_model = model.module if ddp else model


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    return learning_rate * 0.5 * (1.0 + math.cos(math.pi * (it - warmup_iters) / max(1, max_iters - warmup_iters)))


data = batches()
X, Y = next(data)
t0 = time.time()
losses, norms = [], []
while iter_num < max_iters:
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = next(data)
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)))
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    t1 = time.time()
    dt, t0 = t1 - t0, t1
    iter_num += 1
    losses.append(loss.item() * gradient_accumulation_steps)
    if master_process:
        print(f"iter {iter_num}: loss {losses[-1]:.4f}, time {dt * 1000:.2f}ms")
if master_process:
    torch.save(
        {"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num},
        os.path.join(out_dir, "ckpt.pt"),
    )
weights = float(sum(p.detach().double().abs().sum() for p in raw_model.parameters()))
print("RESULT " + json.dumps({"losses": losses, "norms": norms, "weights": weights}))
if ddp:
    destroy_process_group()
