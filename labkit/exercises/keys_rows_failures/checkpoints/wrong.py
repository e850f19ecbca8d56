"""Wrong answers to checkpoints, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed


changed("one name", "one file for all", ('f"{version:012}.checkpoint"', '"last.checkpoint"'))
changed("unpadded", "names that sort like words", ("{version:012}", "{version}"))
changed("oldest first", "the oldest", (", reverse=True", ""))
changed("no try", "a damaged file ends it",
        ("        try:\n            found = torch.load(path, weights_only=True)\n        except Exception:  # damaged in any way: an older one will do\n            continue\n",
         "        found = torch.load(path, weights_only=True)\n"))  # fmt: skip
changed("takes what it finds", "an incomplete file is taken for whole",
        ("            continue\n", "            return int(path.stem), torch.zeros(0)\n"))  # fmt: skip
FLUSH = "        os.fsync(file.fileno())\n"
RENAME = "    unfinished.replace(path)\n"
changed("no fsync", "renamed too early", (FLUSH, ""))
changed("fsync after the rename", "renamed too early", (FLUSH, ""),
        (RENAME, RENAME + "    with path.open('rb') as file:\n        os.fsync(file.fileno())\n"))  # fmt: skip
changed("no rename, no fsync", "not flushed to the disk", (FLUSH, ""),
        ("    unfinished = path.with_suffix(\".unfinished\")\n",
         "    unfinished = path if not path.exists() else path.with_suffix(\".unfinished\")\n"),
        (RENAME, "    if unfinished != path:\n        unfinished.replace(path)\n"))  # fmt: skip
changed("the folder stays in memory", "the folder not flushed", ("    os.fsync(directory)\n", ""))
changed("writes in place", "written over the old one",
        ("unfinished.open(", "path.open("), ("    unfinished.replace(path)\n", ""))  # fmt: skip
