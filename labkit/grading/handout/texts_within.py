"""Every text that a file of a bundle holds in a form one reads without effort: as it is, commented out, or encoded."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

NOT_SEARCHED = (
    "the search reads text, notebooks with all their metadata and attachments, comments, and base64 and hexadecimal, "
    "compressed or not; it does not see what is said in other words, drawn in a picture, or encoded some other way"
)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}(?:\s*\n[A-Za-z0-9+/_-]{4,})*={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}\s*){24,}")
_COMMENT = re.compile(r"(?m)^(\s*)(?:#+|//+|%)[ ]?")
_DEEPEST = 3
_MOST_BYTES = 4 << 20


def texts_within(text: str, depth: int = 0) -> Iterator[str]:
    """Yield `text`, the same with its comment signs taken off, and what is encoded in it."""
    yield text
    if _COMMENT.search(text):
        yield _COMMENT.sub(r"\1", text)
    if depth < _DEEPEST:
        for inner in _decoded(text):
            yield from texts_within(inner, depth + 1)


def strings_of(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, keys too, and lists of strings as one text."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            if each and all(isinstance(line, str) for line in each):
                yield "".join(each)
                yield "\n".join(each)
            waiting += each


def notebook_texts(text: str) -> Iterator[str]:
    """Yield every string of a notebook: sources, metadata, attachments, outputs."""
    yield from strings_of(json.loads(text))


def _decoded(text: str) -> Iterator[str]:
    for match in _BASE64.finditer(text):
        digits = re.sub(r"\s", "", match.group()).rstrip("=").translate(str.maketrans("-_", "+/"))
        yield from _as_text(lambda digits=digits: base64.b64decode(digits + "=" * (-len(digits) % 4)))
    for match in _HEX.finditer(text):
        digits = re.sub(r"\s", "", match.group())
        yield from _as_text(lambda digits=digits: bytes.fromhex(digits))


def _as_text(decode: Any) -> Iterator[str]:
    try:
        data = decode()
    except (binascii.Error, ValueError):
        return
    for bits in (None, 15, 31, -15):
        try:
            found = data if bits is None else zlib.decompressobj(bits).decompress(data, _MOST_BYTES)
            plain = found.decode("utf-8")
        except (zlib.error, UnicodeDecodeError):
            continue
        if len(re.findall(r"[\w\s]", plain)) > len(plain) / 2:
            yield plain
