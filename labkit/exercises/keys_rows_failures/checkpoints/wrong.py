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
changed("no fsync", "not flushed to the disk", ("        os.fsync(file.fileno())\n", ""))
changed("writes in place", "written over the old one",
        ("unfinished.open(", "path.open("), ("    unfinished.replace(path)\n", ""))  # fmt: skip
