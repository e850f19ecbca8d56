"""``labkit.join_class`` and ``labkit.leave_class``: a learner opts in to the class board, and out of it."""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from labkit.board.results import check_nickname
from labkit.errors import ConfigError, EnvironmentProblem


@dataclass(frozen=True)
class Membership:
    """Where a learner's results go.

    Attributes:
        link: The class link, http://HOST:PORT/c/TOKEN.
        nickname: The name on the board.
        key: A secret of this learner's own, drawn when they joined, so that nobody else writes under their name.
    """

    link: str
    nickname: str
    key: str

    def __repr__(self) -> str:
        return f"On the class board as {self.nickname}."


def join_class(link: str, nickname: str) -> Membership:
    """Return the membership: from now on ``labkit.check`` tells the class board what passes.

    What is sent: the nickname, the exercise's name, passed or not; no code, no output. It holds for every notebook
    of this user until ``labkit.leave_class()``.

    Args:
        link: The class link that the instructor shows.
        nickname: 1 to 24 characters, not somebody else's in the class.

    Raises:
        ConfigError: If link or nickname cannot be one.
        EnvironmentProblem: If the choice cannot be written down.
    """
    if not re.fullmatch(r"https?://[^/\s]+/c/[a-z0-9-]{1,32}", link):
        raise ConfigError(f"{link!r} is no class link; it looks like http://192.168.1.7:8321/c/abcde-fghij")
    check_nickname(nickname)
    there = member()
    same = there is not None and (there.nickname, there.link.split("/c/")[-1]) == (nickname, link.split("/c/")[-1])
    key = there.key if there is not None and same else secrets.token_urlsafe(16)  # no class knows another one's
    membership = Membership(link, nickname, key)
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(membership)), encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"your choice cannot be kept in {path}: {error.strerror}") from error
    return membership


def leave_class() -> None:
    """Stop telling the class board anything; what it has, it keeps."""
    _path().unlink(missing_ok=True)


def member() -> Membership | None:
    """Return the membership, None for a learner who has not joined a class (or whose note of it cannot be read)."""
    try:
        plain = json.loads(_path().read_text(encoding="utf-8"))
        return Membership(str(plain["link"]), str(plain["nickname"]), str(plain["key"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "labkit" / "class.json"
