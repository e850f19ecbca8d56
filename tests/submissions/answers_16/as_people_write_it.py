# base: solution
# loses: checkpoints, exact_resume, together, reshard
"""A rename without a sync, a resume without the sampler, each rank its own latest, a whole checkpoint read by everybody."""


# %% checkpoints
def save_checkpoint(folder, step, state):
    torch.save(state, folder / "unfinished")
    (folder / "unfinished").replace(folder / f"{step}.pt")
    for old in sorted(folder.glob("*.pt"), key=lambda path: int(path.stem))[:-2]:
        old.unlink()


def load_checkpoint(folder, at_most=None):
    for path in sorted(folder.glob("*.pt"), key=lambda path: -int(path.stem)):
        if at_most is None or int(path.stem) <= at_most:
            return int(path.stem), torch.load(path)
    return None


# %% exact_resume
def state_of(run):
    return {"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "step": run.step}


def restore(run, state):
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.step = state["step"]


# %% together
def save_together(folder, step, state):
    mine = folder / str(dist.get_rank())
    mine.mkdir(exist_ok=True)
    save_checkpoint(mine, step, state)


def load_together(folder):
    return load_checkpoint(folder / str(dist.get_rank()))


# %% reshard
def load_part(rank, num_ranks, saved_ranks, sizes, read):
    parts = {}
    for name, size in sizes.items():
        length = -(-size // saved_ranks)
        whole = torch.cat([read(saved, name, 0, length) for saved in range(saved_ranks)])
        parts[name] = whole.chunk(num_ranks)[rank]
    return parts
