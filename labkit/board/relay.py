"""A board without a network: learners append to files of their own in a shared folder, the board reads them.

For a JupyterHub or a lab in which machines share a folder and cannot reach each other. Whoever can write to the folder
can put anything into it, and everybody can read it. So a line holds no key, only its seal (labkit.board.seals), and
what is no plain file, no line or no right seal is passed over.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.board import seals
from labkit.errors import ConfigError, EnvironmentProblem

CLASS = "class.json"
_MOST_BYTES = 4 << 20
_MOST_SECONDS = 0.5
_MOST_KNOWN = 4000
_PLAINLY = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC if os.name == "posix" else 0
"""A pipe keeps nobody waiting, and a link leads nowhere."""
_OF_ONE_LINE = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, ConfigError, sqlite3.Error)


def open_folder(folder: Path, token: str, secret: str = "") -> None:
    """Make a folder a class's relay, or go on with it.

    Args:
        folder: The folder.
        token: The class's.
        secret: The board's own, which lines are sealed for.

    Raises:
        EnvironmentProblem: If it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_about(folder, {"labkit_class": token, "sealed_for": seals.shown(secret), "names": {}})
    except OSError as error:
        raise EnvironmentProblem(f"the relay folder {folder} cannot be written ({error.strerror})") from None


def send(folder: Path, what: str, body: dict[str, object]) -> None:
    """Append one line for the board: what was posted, and its body without the key.

    Raises:
        ConfigError: If the folder is no relay of a class, or the nickname is another's.
    """
    about = _read_about(folder)
    key, said = str(body["key"]), {name: value for name, value in body.items() if name != "key"}
    own = seals.shown(key)
    name = _name(own)
    if about["names"].get(str(body["nickname"]), name) != name:
        raise ConfigError(f"somebody else in this class is called {body['nickname']!r}; choose another nickname")
    number = time.time_ns()
    sealed = seals.seal(seals.agreed(key, about["sealed_for"]), number, what, said)
    line = json.dumps({"what": what, "body": said, "from": own, "number": number, "seal": sealed}) + "\n"
    fd = os.open(folder / f"{name}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | _PLAINLY, 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(line.encode())


class Reader:
    """Hands the board each whole line once; where it is in a file is remembered while it runs.

    Args:
        folder: The relay's.
        take: Told what was posted and its body, with the key that the seal stands for.
        token: The class's.
        secret: The board's own.
    """

    def __init__(self, folder: Path, take: Callable[[str, object], None], token: str = "", secret: str = "") -> None:
        self._folder, self._take, self._token, self._secret = folder, take, token, secret
        self._read: dict[str, int] = {}
        self._in_long_line: set[str] = set()
        self._agreed: dict[str, str] = {}
        self._taken: set[tuple[str, int]] = set()
        self._names: dict[str, str] = {}
        self._next = ""

    def read(self) -> None:
        """Hand over what is new; a second at a time at most, and every file in its turn."""
        told, until = len(self._names), time.monotonic() + _MOST_SECONDS
        try:
            names = sorted(each.name for each in os.scandir(self._folder) if each.name.endswith(".jsonl"))
        except OSError:
            return
        turn = next((at for at, name in enumerate(names) if name >= self._next), 0)
        for name in [*names[turn:], *names[:turn]]:
            self._next = name
            if time.monotonic() > until:
                break
            if not self._take_new_lines(name, until):
                self._next = f"{name}\0"  # who writes much waits for the others before the rest is read
                break
        if len(self._names) != told:
            self._tell_names()

    def _take_new_lines(self, name: str, until: float) -> bool:
        """Hand over the whole lines of a file that were not read; return whether there was time for all of them."""
        start = self._read.get(name, 0)
        data = _plain_bytes(self._folder / name, start)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == _MOST_BYTES:  # a line without an end: it is passed over, in pieces
            self._in_long_line.add(name)
            self._read[name] = start + len(data)
            return True
        end = start + len(whole)
        for line in whole.splitlines(keepends=True):
            start = self._read[name] = start + len(line)
            if name in self._in_long_line:
                if line.endswith(b"\n"):
                    self._in_long_line.discard(name)
                continue
            # A line is anybody's: whatever it breaks, it costs itself and nothing else.
            with suppress(*_OF_ONE_LINE):
                self._hand_over(name, json.loads(line))
            if time.monotonic() > until:
                break
        return start == end

    def _hand_over(self, file: str, plain: Any) -> None:
        what, body = str(plain["what"]), plain["body"]
        if "seal" not in plain:  # of a labkit that wrote its key down
            self._take(what, body)
            return
        own, number = plain["from"], plain["number"]
        if file != f"{_name(str(own))}.jsonl":  # to agree with a stranger takes milliseconds: once for each file
            return
        known = self._agreed.get(own) or seals.agreed(self._secret, own)
        if len(self._agreed) < _MOST_KNOWN:
            self._agreed[own] = known
        right = seals.seal(known, number, what, body)
        if not hmac.compare_digest(str(plain["seal"]), right) or (own, number) in self._taken:
            return
        self._taken.add((own, number))
        self._take(what, {**body, "key": known})
        self._names.setdefault(str(body["nickname"]), _name(own))

    def _tell_names(self) -> None:
        """Write down whose each nickname is, so that who comes later learns that it is taken."""
        shown = seals.shown(self._secret)
        try:
            _write_about(self._folder, {"labkit_class": self._token, "sealed_for": shown, "names": self._names})
        except OSError:
            return  # the board goes on without: it refuses the second of a name itself


def _name(shown: str) -> str:
    """Return what a learner's file is called: nobody can be there before they have shown their number."""
    return hashlib.sha256(shown.encode()).hexdigest()[:24]


def _write_about(folder: Path, about: dict[str, object]) -> None:
    """Write what everybody reads first, in the place of whatever lies there."""
    made = folder / f".{CLASS}.{secrets.token_hex(4)}"
    made.write_text(json.dumps(about) + "\n", encoding="utf-8")
    made.replace(folder / CLASS)


def _read_about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads(_plain_bytes(folder / CLASS))
        return {"names": dict(about["names"]), "sealed_for": str(about["sealed_for"])}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ConfigError(
            f"{folder} is not a class's relay folder (it has no {CLASS}); the instructor makes one with labkit board "
            "--relay"
        ) from None


def _plain_bytes(path: Path, start: int = 0) -> bytes:
    """Return what a file holds from there on, a bounded part at a time; b"" of what is none or cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | _PLAINLY)
    except OSError:
        return b""
    try:
        is_plain = stat.S_ISREG(os.fstat(fd).st_mode)
        return os.pread(fd, _MOST_BYTES, start) if is_plain else b""
    except OSError:
        return b""
    finally:
        os.close(fd)
