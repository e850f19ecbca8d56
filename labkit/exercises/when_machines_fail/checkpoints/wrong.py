"""Wrong answers to checkpoints, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

SYNC_FILE = "        file.flush()\n        os.fsync(file.fileno())\n"
RENAME = "    unfinished.replace(path)\n"
SYNC_FOLDER = "    sync(folder)\n"
DELETE = '    for old in sorted(folder.glob("*.pt"))[:-2]:\n        old.unlink()\n'
OPEN = '    with unfinished.open("wb") as file:\n'
GUARDED = (
    "        try:\n            state = torch.load(path)\n"
    "        except Exception:  # damaged in any way: an older one will do\n            continue\n"
)

changed("no fsync", "renamed too early", (SYNC_FILE, ""))
changed("syncs the folder for the file", "renamed too early", (SYNC_FILE, ""), (RENAME, SYNC_FOLDER + RENAME))
WRONG.wrong(
    "torch.save by name, and only the folder synced", "renamed too early",
    """def save_checkpoint(folder, step, state):
    torch.save(state, folder / "tmp")
    sync(folder)
    (folder / "tmp").replace(folder / f"{step}.pt")
    sync(folder)
    for old in sorted(folder.glob("*.pt"), key=lambda path: int(path.stem))[:-2]:
        old.unlink()


def load_checkpoint(folder, at_most=None):
    for path in sorted(folder.glob("*.pt"), key=lambda path: -int(path.stem)):
        try:
            if at_most is None or int(path.stem) <= at_most:
                return int(path.stem), torch.load(path)
        except Exception:
            pass
    return None
""",
)  # fmt: skip
changed("fsync after the rename", "renamed too early", (SYNC_FILE, ""), (RENAME, RENAME + "    sync(path)\n"))
changed("no rename, no fsync", "written in place", (SYNC_FILE, ""), (OPEN, "    unfinished = path\n" + OPEN),
        (RENAME, ""))  # fmt: skip
changed("the folder stays in memory", "the folder not flushed", (SYNC_FOLDER, ""))
changed("the folder is synced before", "the folder not flushed", (SYNC_FOLDER, ""), (RENAME, SYNC_FOLDER + RENAME))
changed("writes in place", "written in place", (OPEN, "    unfinished = path\n" + OPEN), (RENAME, ""))
WRONG.wrong(
    "one name", "one file for all",
    """def save_checkpoint(folder, step, state):
    with (folder / "unfinished").open("wb") as file:
        torch.save((step, state), file)
        os.fsync(file.fileno())
    (folder / "unfinished").replace(folder / "last.pt")
    sync(folder)


def load_checkpoint(folder, at_most=None):
    try:
        step, state = torch.load(folder / "last.pt")
    except Exception:
        return None
    return None if at_most is not None and step > at_most else (step, state)
""",
)  # fmt: skip
changed("unpadded", "names that sort like words", ("{step:012}", "{step}"))
changed("deletes as text", "names that sort like words", ("{step:012}", "{step}"),
        ('sorted(folder.glob("*.pt"), reverse=True)',
         'sorted(folder.glob("*.pt"), key=lambda path: -int(path.stem))'))  # fmt: skip
changed("less than at_most", "at_most itself left out", ("int(path.stem) > at_most", "int(path.stem) >= at_most"))
changed(
    "one try",
    "gives up at a damaged file",
    ("            continue\n        return int", "            return None\n        return int"),
)
changed("all names", "a leftover taken for a checkpoint",
        ('sorted(folder.glob("*.pt"), reverse=True)',
         'sorted(folder.glob("*"), key=lambda path: -int(path.stem))'))  # fmt: skip
changed("an unfinished name for each step", "old ones are left", ('folder / "unfinished"', 'folder / f"{step}.tmp"'))
changed("oldest first", "the oldest", (", reverse=True", ""))
changed("no try", "a damaged file ends it", (GUARDED, "        state = torch.load(path)\n"))
changed("deletes all of them first", "the last good one deleted first", (DELETE, ""),
        (OPEN, '    for old in folder.glob("*.pt"):\n        old.unlink()\n' + OPEN))  # fmt: skip
changed("makes a new file", "a crash in mid-checkpoint for ever", (OPEN, OPEN.replace('"wb"', '"xb"')))
changed("deletes nothing", "old ones are left", (DELETE, ""))
changed(
    "takes the newest always",
    "at_most ignored",
    ("        if at_most is not None and int(path.stem) > at_most:\n            continue\n", ""),
)
WRONG.wrong(
    "a checksum, and no fsync", "not flushed to the disk",
    """def save_checkpoint(folder, step, state):
    import hashlib, io
    written = io.BytesIO()
    torch.save(state, written)
    data = written.getvalue()
    (folder / f"{step:012}.pt").write_bytes(hashlib.sha256(data).digest() + data)
    sync(folder)
    for old in sorted(folder.glob("*.pt"))[:-2]:
        old.unlink()


def load_checkpoint(folder, at_most=None):
    import hashlib, io
    for path in sorted(folder.glob("*.pt"), reverse=True):
        data = path.read_bytes()
        if (at_most is None or int(path.stem) <= at_most) and hashlib.sha256(data[32:]).digest() == data[:32]:
            return int(path.stem), torch.load(io.BytesIO(data[32:]))
""",
)  # fmt: skip
changed("is there already", "the folder not flushed", (OPEN, "    if path.exists():\n        return\n" + OPEN))
changed("another unfinished name each time", "old ones are left",
        ('folder / "unfinished"', 'folder / f"{os.urandom(4).hex()}.tmp"'))  # fmt: skip
WRONG.right(
    "folders, and a name by number",
    """def save_checkpoint(folder, step, state):
    for old in folder.glob("*.tmp"):
        old.unlink()
    part = folder / f"{step}.tmp"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT)
    with os.fdopen(handle, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fdatasync(file.fileno())
    os.rename(part, folder / f"{step}.pt")
    sync(folder)
    for old in sorted(folder.glob("*.pt"), key=lambda path: int(path.stem))[:-2]:
        os.remove(old)


def load_checkpoint(folder, at_most=None):
    newest = None
    for path in sorted(folder.glob("*.pt"), key=lambda path: int(path.stem)):
        try:
            if at_most is None or int(path.stem) <= at_most:
                newest = int(path.stem), torch.load(path)
        except Exception:
            pass
    return newest
""",
)
WRONG.right(
    "torch.save by name, synced afterwards",
    """import pickle


def save_checkpoint(folder, step, state):
    torch.save(state, folder / "new")
    sync(folder / "new")
    os.rename(folder / "new", folder / f"{step:09}.pt")
    sync(folder)
    older = sorted(path.name for path in folder.iterdir() if path.suffix == ".pt")
    for name in older[:-2]:
        (folder / name).unlink()


def load_checkpoint(folder, at_most=None):
    found = {int(path.stem): path for path in folder.glob("*.pt")}
    for step in sorted(found, reverse=True):
        if at_most is None or step <= at_most:
            try:
                return step, torch.load(found[step])
            except (EOFError, OSError, RuntimeError, ValueError, pickle.UnpicklingError):
                pass
""",
)
changed("stops at a later step", "gives up at a later step",
        ("> at_most:\n            continue\n", "> at_most:\n            break\n"))  # fmt: skip
changed("leaves the unfinished name", "not found again", (RENAME, ""))
changed("deletes all of them last", "nothing is left", (DELETE, DELETE.replace("[:-2]", "")))
changed("writes beside the folder", "nothing is left", ('folder / f"{step:012}.pt"', 'Path(f"{step:012}.pt")'))
WRONG.changed(
    "state and step",
    "not a pair of step and state",
    ("return int(path.stem), state", "return state, int(path.stem)"),
)
changed(
    "the step after",
    "a step that was never saved",
    ("return int(path.stem), state", "return int(path.stem) + 1, state"),
)
changed("takes at_most 0 for none", "at_most ignored", ("if at_most is not None and int", "if at_most and int"))
changed(
    "takes step 0 for none", "step 0 taken for none",
    ("        return int(path.stem), state\n", "        return (int(path.stem), state) if int(path.stem) else None\n"),
)  # fmt: skip
changed("keeps the newest alone", "one file for all", ("[:-2]", "[:-1]"))
changed(
    "raises where there is none", "an error for none", ("    return None\n", "    raise FileNotFoundError(folder)\n")
)
changed(
    "the first of a list that may be empty", "an error for none",
    ("    for path in paths:\n", "    paths[0].stat()\n    for path in paths:\n"),
)  # fmt: skip
WRONG.right(
    "catches what torch.load raises of a file that is cut off, or empty",
    """import pickle


def save_checkpoint(folder, step, state):
    with open(folder / "new", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(folder / "new", folder / f"{step:09d}.pt")
    sync(folder)
    for each in sorted(folder.glob("*.pt"))[:-2]:
        os.remove(each)


def load_checkpoint(folder, at_most=None):
    for path in sorted(folder.glob("*.pt"), reverse=True):
        step = int(path.stem)
        if at_most is None or step <= at_most:
            try:
                return step, torch.load(path)
            except (EOFError, RuntimeError, pickle.UnpicklingError):
                pass
    return None
""",
)
CATCHES = "except Exception:  # damaged in any way: an older one will do"
changed("catches what a long piece raises", "a damaged file ends it", (CATCHES, "except (EOFError, RuntimeError):"))
changed("skips files that are empty", "a damaged file ends it",
        (GUARDED,
         "        if not path.stat().st_size:\n            continue\n        state = torch.load(path)\n"))  # fmt: skip
changed("six digits", "names that sort like words", ("{step:012}", "{step:06}"))
changed("deletes the newest", "the oldest", ('sorted(folder.glob("*.pt"))[:-2]', 'sorted(folder.glob("*.pt"))[2:]'))
