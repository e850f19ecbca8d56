"""Wrong answers to together, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

REDUCE = "    dist.all_reduce(newest, op=dist.ReduceOp.MIN)\n"
MINE = '    mine = folder / f"rank-{dist.get_rank()}"\n'
RANK_0 = '    mine = folder / "rank-0"\n'
BARRIER = "    dist.barrier()\n"

changed("each its newest", "each rank its own latest", (REDUCE, ""))
changed("the newest of all", "each rank its own latest", ("ReduceOp.MIN", "ReduceOp.MAX"))
changed("rank 0's newest", "each rank its own latest", (REDUCE, "    dist.broadcast(newest, 0)\n"))
changed("saves on rank 0", "rank 0's state alone",
        (MINE + "    mine.mkdir", RANK_0 + "    mine.mkdir"),
        ("    save_checkpoint(mine, step, state)\n",
         "    if dist.get_rank() == 0:\n        save_checkpoint(mine, step, state)\n"),
        (MINE + "    found", RANK_0 + "    found"))  # fmt: skip
WRONG.wrong(
    "only rank 0 saves, and all read it", "rank 0's state alone",
    """def save_together(folder, step, state):
    if dist.get_rank() == 0:
        save_checkpoint(folder, step, state)
    dist.barrier()


def load_together(folder):
    return load_checkpoint(folder)
""",
)  # fmt: skip
changed("nothing is 0", "step 0 taken for none", ("torch.tensor(-1 if found", "torch.tensor(0 if found"),
        ("None if newest < 0", "None if newest < 1"))  # fmt: skip
changed("asks only where it found one", "a call that some never make",
        (REDUCE, "    if found is not None:\n        dist.all_reduce(newest, op=dist.ReduceOp.MIN)\n"))  # fmt: skip
changed("no barrier", "what is not everywhere", (BARRIER, ""))
changed("the new folder's name is not synced", "a step is lost", ("    sync(folder)\n", ""))
changed("syncs the name only once", "a step is lost",
        ("    mine.mkdir(exist_ok=True)\n    sync(folder)\n",
         "    if not mine.exists():\n        mine.mkdir()\n        sync(folder)\n"))  # fmt: skip
WRONG.wrong(
    "makes a folder that may be there", "a crash in mid-checkpoint for ever",
    """def save_together(folder, step, state):
    staging = folder / f"{step}-{dist.get_rank()}.staging"
    staging.mkdir()
    with (staging / "state.pt").open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    sync(staging)
    staging.rename(staging.with_suffix(".whole"))
    sync(folder)
    dist.barrier()


def load_together(folder):
    steps = [int(path.stem.split("-")[0]) for path in folder.glob(f"*-{dist.get_rank()}.whole")]
    newest = torch.tensor(max(steps, default=-1))
    dist.all_reduce(newest, op=dist.ReduceOp.MIN)
    if newest < 0:
        return None
    return newest.item(), torch.load(folder / f"{newest.item()}-{dist.get_rank()}.whole" / "state.pt")
""",
)  # fmt: skip
WRONG.wrong(
    "one file for all",
    "one file for several ranks",
    """def save_together(folder, step, state):
    for turn in range(dist.get_world_size()):
        if turn == dist.get_rank():
            save_checkpoint(folder, step, state)
        dist.barrier()


def load_together(folder):
    found = load_checkpoint(folder)
    dist.barrier()
    return found
""",
)
COUNTED = """def save_together(folder, step, state):
    rank = dist.get_rank()
    with open(folder / f"{step}-{rank}.part", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    sync(folder)
    dist.barrier()
    if rank == 0:
        with open(folder / "latest.part", "w") as file:
            file.write(str(step))
            file.flush()
            os.fsync(file.fileno())
        os.replace(folder / "latest.part", folder / "latest")
        sync(folder)
    dist.barrier()


def load_together(folder):
    if not (folder / "latest").exists():
        return None
    step = int((folder / "latest").read_text())
    return step, torch.load(folder / f"{step}-{dist.get_rank()}.part")
"""
WRONG.right("a name that counts", COUNTED)
WRONG.wrong(
    "the name that counts is not synced", "contents not synced",
    COUNTED.replace(
        """            file.write(str(step))
            file.flush()
            os.fsync(file.fileno())
""",
        """            file.write(str(step))
""",
    ),
)  # fmt: skip
WRONG.wrong(
    "the last rank makes the folder, nobody waits", "in each other's way",
    """def save_together(folder, step, state):
    mine = folder / str(step)
    if dist.get_rank() == dist.get_world_size() - 1:
        mine.mkdir(exist_ok=True)
        sync(folder)
    with open(mine / f"{dist.get_rank()}.pt", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    sync(mine)
    dist.barrier()


def load_together(folder):
    return None
""",
)  # fmt: skip
WRONG.right(
    "a barrier first, and all newest steps gathered",
    """def save_together(folder, step, state):
    dist.barrier()
    mine = folder / str(dist.get_rank())
    try:
        mine.mkdir()
    except FileExistsError:
        pass
    sync(folder)
    save_checkpoint(mine, step, state)


def load_together(folder):
    mine = folder / str(dist.get_rank())
    found = load_checkpoint(mine) if mine.exists() else None
    newest = torch.tensor([found[0] if found else -1])
    every = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(every, newest)
    step = min(each.item() for each in every)
    return None if step < 0 else load_checkpoint(mine, at_most=step)
""",
)
changed("saves nothing", "not found again", ("    save_checkpoint(mine, step, state)\n", ""))
changed("takes every step for none", "not found again", ("None if newest < 0", "None if newest > 0"))
WRONG.changed("1 stands for none", "step 0 taken for none", ("torch.tensor(-1 if", "torch.tensor(1 if"))
BEHIND = '    mine = f"rank-{dist.get_rank()}" / folder\n'
changed("the folder right of the name", "one file for several ranks",
        (MINE + "    mine.mkdir", BEHIND + "    mine.mkdir"), (MINE + "    found", BEHIND + "    found"))  # fmt: skip
changed("saves another tensor", "another state",
        ("mine, step, state)", 'mine, step, {"weight": state["weight"] + 1})'))  # fmt: skip
changed(
    "None where a rank has none, and no call", "a call that some never make",
    ("    newest = torch.tensor(-1 if found",
     "    if found is None:\n        return None\n    newest = torch.tensor(-1 if found"),
)  # fmt: skip
changed(
    "None where a rank is ahead", "each rank its own latest",
    ("return None if newest < 0 else load_checkpoint(mine, at_most=newest.item())",
     "return None if newest < 0 or found[0] != newest else found"),
)  # fmt: skip
changed("a tensor for the step", "a step that is no int",
        ("else load_checkpoint(mine, at_most=newest.item())",
         "else (newest, load_checkpoint(mine, at_most=newest.item())[1])"))  # fmt: skip
changed("raises where its folder is missing", "an error for none",
        ("    found = load_checkpoint(mine)\n",
         "    list(os.scandir(mine))\n    found = load_checkpoint(mine)\n"))  # fmt: skip
changed("a barrier on rank 0 alone", "a barrier that some never call",
        ("    dist.barrier()", "    if dist.get_rank() == 0:\n        dist.barrier()"))  # fmt: skip
changed("the oldest that it has", "an older step",
        ("    found = load_checkpoint(mine)\n",
         '    names = sorted(mine.glob("*.pt"))\n    found = (int(names[0].stem),) if names else None\n'))  # fmt: skip
changed("a rank without one is left out of the minimum", "step 0 taken for none",
        ("torch.tensor(-1 if", "torch.tensor(2**60 if"), ("None if newest < 0", "None if newest == 2**60"))  # fmt: skip
