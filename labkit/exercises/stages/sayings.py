"""How a record of a schedule is said to a learner."""

from __future__ import annotations

from typing import Any


def said(record: Any) -> str:
    """Return a record as the lesson prints it: Send(peer=1, microbatch=0)."""
    if not isinstance(record, dict):
        return str(record)
    fields = ", ".join(f"{name}={record[name]}" for name in ("peer", "chunk", "microbatch") if name in record)
    return f"{record.get('kind')}({fields})"
