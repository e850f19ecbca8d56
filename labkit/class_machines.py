"""The reports of `labkit doctor --json` from a whole class in one table: who cannot start yet, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import ConfigError

_MARKS = {"ok": "ok", "note": "note", "missing": "MISSING", "essential": "STOPS"}
_GRAVITY = {"ok": 0, "note": 1, "missing": 2, "essential": 3}


@dataclass(frozen=True)
class Machine:
    """One learner's machine.

    Attributes:
        name: The file's, without its ending.
        states: What was looked at -> ok, note, missing or essential.
        words: What was looked at -> what was found, and what it costs.
        problem: Why the file cannot be read, or "".
    """

    name: str
    states: Mapping[str, str]
    words: Mapping[str, str]
    problem: str = ""

    @property
    def gravity(self) -> tuple[int, int]:
        """How bad it is: the worst that was found, and how often."""
        found = [_GRAVITY[state] for state in self.states.values()] or [0]
        worst = 4 if self.problem else max(found)
        return worst, found.count(worst)


def read_machines(paths: Sequence[Path]) -> list[Machine]:
    """Return what was found on each machine, those that cannot run labs first.

    Args:
        paths: Files that hold what `labkit doctor --json` printed, or folders of them.

    Raises:
        ConfigError: If there is no file.
    """
    files = [file for path in paths for file in (_listed(path) if path.is_dir() else [path])]
    if not any(file.exists() for file in files):
        where = ", ".join(map(str, paths))
        raise ConfigError(
            f"there is no .json file in {where}; each learner writes one with: labkit doctor --json > name.json"
        )
    return sorted(map(_read, files), key=lambda each: (*(-part for part in each.gravity), each.name.casefold()))


def _listed(folder: Path) -> list[Path]:
    """Return a folder's files of machines; those that begin with "." are of programs, a release's list among them."""
    return sorted(each for each in folder.glob("*.json") if not each.name.startswith("."))


def as_table(machines: Sequence[Machine]) -> str:
    """Return one line for each machine, and below it in words whatever stops somebody or is missing."""
    topics = list(dict.fromkeys(topic for machine in machines for topic in machine.states))
    rows = [["", *topics]]
    for machine in machines:
        found = [_MARKS.get(machine.states.get(topic, ""), "") for topic in topics]
        rows.append([machine.name, *(["unread"] if machine.problem else found)])
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(len(topics) + 1)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    stopped = [each.name for each in machines if each.gravity[0] == 3]
    unread = [each.name for each in machines if each.problem]
    count = len(machines) - len(stopped) - len(unread)
    lines += ["", f"{count} of {len(machines)} machines can run labs."]
    lines += [f"Cannot run labs yet: {', '.join(stopped)}"] if stopped else []
    for machine in machines:
        lines += [f"{machine.name}: {machine.problem}"] if machine.problem else []
        for topic, state in machine.states.items():
            if _GRAVITY[state] >= 2:
                lines.append(f"{machine.name}, {topic}: {machine.words[topic]}")
    return "\n".join(lines)


def _read(path: Path) -> Machine:
    try:
        data = path.read_bytes()
        # PowerShell's > writes UTF-16.
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
        findings = json.loads(text)
        states = {str(each["topic"]): str(each["state"]) for each in findings}
        words = {str(each["topic"]): " ".join(f"{each['text']}. {each['cost']}".split()) for each in findings}
        if not states or set(states.values()) - set(_GRAVITY):
            raise ValueError("it holds no findings")
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Machine(path.stem, {}, {}, f"not what labkit doctor --json printed ({error})")
    return Machine(path.stem, states, words)
