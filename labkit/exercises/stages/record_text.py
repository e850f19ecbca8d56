"""A record of a schedule as the lesson prints it."""

from __future__ import annotations

from typing import Any


def record_text(record: Any) -> str:
    """Return a record in the form Send(peer=1, microbatch=0)."""
    if not isinstance(record, dict):
        return str(record)
    fields = ", ".join(f"{name}={record[name]}" for name in ("peer", "chunk", "microbatch") if name in record)
    return f"{record.get('kind')}({fields})"
