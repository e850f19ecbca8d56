"""One thing told to the class board, over HTTP or as a line in a relay folder: learners' machines only call out."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.board import relay
from labkit.errors import ConfigError

if TYPE_CHECKING:
    from labkit.board.membership import Membership

SECONDS = 5.0
_TAKEN = 204  # what the board says; a login page says 200


def post(membership: Membership, what: str, body: dict[str, object]) -> tuple[str, bool]:
    """Return what is to be told the learner ("" if all is well), and whether to try again later.

    Args:
        membership: Who, and where to.
        what: "result", "join", "say", "guess" or "measured".
        body: The rest of what is sent.
    """
    whole = {"nickname": membership.nickname, "key": membership.key, **body}
    if not membership.link.startswith("http"):
        return _to_folder(Path(membership.link), what, whole)
    request = urllib.request.Request(
        f"{membership.link}/{what}", json.dumps(whole).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    about = f" of {body['exercise']}" if "exercise" in body else ""
    try:
        # No proxy: the board is a machine in the room.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=SECONDS) as answer:
            return ("", False) if answer.status == _TAKEN else (_no_board(membership, answer.status), True)
    except urllib.error.HTTPError as error:
        with error:
            why = error.read(500).decode("utf-8", "replace")
            if not why or error.headers.get_content_type() != "text/plain":
                return _no_board(membership, error.code), True
            return f"The class board did not take the {what}{about}: {why}.", error.code >= 500
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return (
            f"The class board at {membership.link.partition('/c/')[0]} did not answer ({reason}).",
            True,
        )


def _no_board(membership: Membership, status: int) -> str:
    """Return what is told of a network's login page, a proxy, or another program at that address."""
    return f"What answers at {membership.link.partition('/c/')[0]} is not a class board (HTTP {status})."


def _to_folder(folder: Path, what: str, whole: dict[str, object]) -> tuple[str, bool]:
    try:
        relay.send(folder, what, whole)
    except ConfigError as error:
        return f"The class board did not take the {what}: {error}.", False
    except OSError as error:
        return f"The class's folder {folder} cannot be written ({error.strerror}).", True
    return "", False
