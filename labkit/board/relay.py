"""A board without a network: learners append to files of their own in a shared folder, the board reads them.

For a JupyterHub or a lab in which machines share a folder and cannot reach each other. Whoever can write to the folder
can write anything into it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from labkit.errors import ConfigError, EnvironmentProblem

CLASS = "class.json"
_MOST_BYTES = 4 << 20


def open_folder(folder: Path, token: str) -> None:
    """Make a folder a class's relay, or go on with it.

    Raises:
        EnvironmentProblem: If it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CLASS).write_text(json.dumps({"labkit_class": token}) + "\n", encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"the relay folder {folder} cannot be written ({error.strerror})") from None


def send(folder: Path, what: str, body: dict[str, object]) -> None:
    """Append one line for the board: what was posted, and its body.

    Raises:
        ConfigError: If the folder is no relay of a class, or the nickname is another's.
    """
    if not (folder / CLASS).is_file():
        raise ConfigError(
            f"{folder} is not a class's relay folder (it has no {CLASS}); the instructor makes one with labkit board "
            "--relay"
        )
    name = hashlib.sha256(str(body["nickname"]).encode()).hexdigest()[:24]
    path = folder / f"{name}.jsonl"
    if path.is_file():
        first = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
        if first["body"]["key"] != body["key"]:
            raise ConfigError(f"somebody else in this class is called {body['nickname']!r}; choose another nickname")
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"what": what, "body": body}) + "\n")


class Reader:
    """Hands the board each whole line once; where it is in a file is remembered while it runs.

    Args:
        folder: The relay's.
        take: Told what was posted and its body.
    """

    def __init__(self, folder: Path, take: Callable[[str, object], None]) -> None:
        self._folder, self._take = folder, take
        self._read: dict[Path, int] = {}

    def read(self) -> None:
        """Hand over what is new; what is no line of ours is passed over."""
        for path in sorted(self._folder.glob("*.jsonl")):
            start = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(start)
                data = file.read(_MOST_BYTES)
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = start + len(whole)
            for line in whole.splitlines():
                try:
                    plain = json.loads(line)
                    self._take(str(plain["what"]), plain["body"])
                except (ValueError, KeyError, TypeError, RecursionError, ConfigError):
                    continue
