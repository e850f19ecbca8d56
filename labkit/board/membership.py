"""``labkit.join_class`` and what follows: a learner opts in to the class board, asks for help there, and opts out."""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from labkit.board.posting import post
from labkit.board.results import check_nickname
from labkit.errors import ConfigError, EnvironmentProblem


@dataclass(frozen=True)
class Membership:
    """Where a learner's results go.

    Attributes:
        link: The class link, http://HOST:PORT/c/TOKEN, or the folder of a relay.
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

    What is sent: the nickname, the exercise's name, passed or not, the name of a known mistake, guesses, the plan of a
    design; no code, no output. It holds for every notebook of this user until ``labkit.leave_class()``.

    Args:
        link: The class link that the instructor shows, or the shared folder where machines cannot reach each other.
        nickname: 1 to 24 characters, not somebody else's in the class.

    Raises:
        ConfigError: If link or nickname cannot be one, the board does not know the link, or the name is taken.
        EnvironmentProblem: If the board does not answer, or the choice cannot be written down.
    """
    folder = not link.startswith("http") and Path(link).is_dir()
    if not folder and not re.fullmatch(r"https?://[^/\s]+/c/[a-z0-9-]{1,32}", link):
        raise ConfigError(f"{link!r} is not a class link; one looks like http://192.168.1.7:8321/c/abcde-fghij")
    check_nickname(nickname)
    there = member()
    same = there is not None and (there.nickname, there.link.split("/c/")[-1]) == (nickname, link.split("/c/")[-1])
    key = there.key if there is not None and same else secrets.token_urlsafe(16)  # no class knows another one's
    membership = Membership(str(Path(link).resolve()) if folder else link, nickname, key)
    _tell(membership, "join", {})
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(membership)), encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"your nickname could not be saved in {path}: {error.strerror}") from error
    return membership


def i_need_help() -> str:
    """Show your nickname to your instructor among those who want help, until somebody came or you say `i_am_done`."""
    return _said("help", "Your instructor sees that you want help. labkit.i_am_done() takes it back.")


def i_am_done() -> str:
    """Show your instructor that you have finished and need no help; return that in words."""
    return _said("done", "Your instructor sees that you are done.")


def _said(what: str, words: str) -> str:
    membership = member()
    if membership is None:
        raise ConfigError('you have not joined a class; call labkit.join_class("THE LINK ON THE WALL", "a nickname")')
    _tell(membership, "say", {"what": what})
    return words


def _tell(membership: Membership, what: str, body: dict[str, object]) -> None:
    """Tell the board something at once.

    Raises:
        ConfigError: If the board refuses it.
        EnvironmentProblem: If it does not answer.
    """
    trouble, away = post(membership, what, body)
    if away:
        raise EnvironmentProblem(
            f"{trouble} Compare the link with the one on the wall, and check that this machine is on the room's network"
        )
    if trouble:
        raise ConfigError(trouble)


def leave_class() -> None:
    """Stop sending anything to the class board; what it already has, it keeps."""
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
