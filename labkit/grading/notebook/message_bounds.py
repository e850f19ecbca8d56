"""What of a kernel's message is kept: known fields, of known types, of bounded size; everything else is dropped.

A student's code can send whatever it likes in its kernel's name. What is not one of a notebook's five kinds of output
is not kept at all, and of those nothing that could be large: names, values and tracebacks are cut, metadata and data
other than text go where they are more than small.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LONGEST_NAME = 200
LONGEST_VALUE = 4000
MOST_LINES = 100
MOST_KINDS = 20
MOST_METADATA_BYTES = 4000
OUTPUTS = ("stream", "display_data", "execute_result", "error", "update_display_data")
_EACH_BYTES = 300
"""What an output takes besides its text."""


def bounded_content(kind: str, content: Any, room: int) -> dict[str, Any]:
    """Return the content of a message that is one of ``OUTPUTS``, cut to what may be kept.

    Args:
        kind: The message's kind.
        content: As it came.
        room: Characters of text that may be kept.
    """
    content = content if isinstance(content, Mapping) else {}
    if kind == "stream":
        name = content.get("name")
        return {"name": name if name in ("stdout", "stderr") else "stdout", "text": _text(content.get("text"), room)}
    if kind == "error":
        lines = content.get("traceback")
        kept = [_text(line, LONGEST_VALUE) for line in lines[-MOST_LINES:]] if isinstance(lines, list) else []
        return {
            "ename": _text(content.get("ename"), LONGEST_NAME),
            "evalue": _text(content.get("evalue"), LONGEST_VALUE),
            "traceback": kept,
        }
    found: dict[str, Any] = {"data": _data(content.get("data"), room), "metadata": _metadata(content.get("metadata"))}
    count = content.get("execution_count")
    if kind == "execute_result":
        found["execution_count"] = count if type(count) is int and 0 <= count < 1 << 31 else 1
    transient = content.get("transient")
    name = transient.get("display_id") if isinstance(transient, Mapping) else None
    if isinstance(name, str):
        found["transient"] = {"display_id": name[:LONGEST_NAME]}
    return found


def arrived_bytes(content: Any) -> int:
    """Return about how many bytes of output a message brought, whatever of it is kept."""
    if not isinstance(content, Mapping):
        return _EACH_BYTES
    texts = [content.get("text")]
    for several in (content.get("traceback"), content.get("data")):
        texts += several.values() if isinstance(several, Mapping) else several if isinstance(several, list) else []
    return _EACH_BYTES + sum(len(each) if isinstance(each, str) else 1000 for each in texts if each is not None)


def size_of(content: Mapping[str, Any]) -> int:
    """Return about how many bytes a bounded output takes."""
    texts = [content.get("text", ""), content.get("ename", ""), content.get("evalue", "")]
    texts += content.get("traceback", [])
    texts += content.get("data", {}).values()
    return _EACH_BYTES + sum(map(len, texts)) + (MOST_METADATA_BYTES if content.get("metadata") else 0)


def _text(value: Any, most: int) -> str:
    return value[: max(0, most)] if isinstance(value, str) else ""


def _data(value: Any, room: int) -> dict[str, str]:
    """Return the representations that are text, those that fit: half a picture is none."""
    kept: dict[str, str] = {}
    for kind, text in list(value.items())[:MOST_KINDS] if isinstance(value, Mapping) else ():
        if isinstance(text, str) and len(str(kind)) <= LONGEST_NAME:
            if kind == "text/plain":
                text = text[: max(0, room)]
            if len(text) <= room:
                kept[str(kind)] = text
                room -= len(text)
    return kept


def _metadata(value: Any) -> dict[str, Any]:
    """Return metadata that is small, else none: a reveal's result lies there."""
    if not isinstance(value, Mapping) or not value:
        return {}
    try:
        text = json.dumps(value)
    except (ValueError, TypeError, RecursionError):
        return {}
    return dict(value) if len(text) <= MOST_METADATA_BYTES else {}
