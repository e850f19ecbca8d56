"""What a hidden case that failed is told as, on the trusted side."""

from __future__ import annotations

import re
from typing import Any

_SIGNALS = {
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
}


_CLOSED = re.compile(r"No module named 'labkit\.")


def failure_fields(rank: int, found: object) -> dict[str, Any]:
    """Return what a rank says went wrong, made of plain text whatever it sent."""
    fields = found if isinstance(found, dict) else {}
    kind = fields.get("kind")
    kind = kind if kind in ("not_implemented", "exception", "bad_result") else "exception"
    texts = {name: str(fields.get(name, ""))[:4000] for name in ("message", "detail", "error")}
    if texts["error"] == "ModuleNotFoundError" and _CLOSED.search(texts["message"]):
        texts["message"] += " While points are earned, only the parts of labkit that run code are available."
    return {"kind": kind, "rank": rank, **texts}


def exit_words(rank: int, code: int) -> str:
    """Return how a rank ended that returned nothing, in a sentence."""
    if code < 0:
        name = _SIGNALS.get(-code, f"signal {-code}")
        why = {"SIGXCPU": ": it used too much processor time", "SIGSEGV": ": it crashed"}.get(name, "")
        return f"Rank {rank} was ended by {name}{why}."
    return f"Rank {rank} ended with exit status {code} before it returned a result."


def gone_words() -> dict[str, Any]:
    """Return the failure of a case whose template ended."""
    return {
        "kind": "died",
        "rank": None,
        "message": "The code ended the process that started it.",
        "detail": "",
        "error": "",
    }


def line(text: str) -> str:
    """Return the first line of a text, cut."""
    return text.splitlines()[0][:200] if text else ""


def sentence(text: str) -> str:
    """Return a text that begins with a capital."""
    return text[:1].upper() + text[1:]
