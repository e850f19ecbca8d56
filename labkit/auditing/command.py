"""What `labkit audit` and `labkit explain` do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit.auditing import judging
from labkit.auditing.auditing import Audit, audit
from labkit.auditing.catalogue import explained
from labkit.auditing.page import page
from labkit.errors import ConfigError
from labkit.virtual_world import virtual


def audited(
    path: Path,
    args: Sequence[str],
    on: str,
    *,
    as_json: Path | None,
    html: Path | None,
    resume: str | None,
    **asked: Any,
) -> Audit:
    """Return what an audit of a script says, written to the files that were named; asked goes to audit().

    Raises:
        ConfigError: If the world or a file cannot be.
        RunError: If the run failed.
    """
    kind, _, number = on.partition(":")
    if kind != "virtual" or not number.isdecimal():
        raise ConfigError(f"--on {on} is no world to audit in; use virtual:N, N the number of ranks.")
    for name, file in (("--json", as_json), ("--html", html)):
        if file is not None and not file.absolute().parent.is_dir():
            folder = file.absolute().parent
            raise ConfigError(f"{name} {file}: there is no folder {folder}; make it, or name another file.")
    found = audit(path, *args, on=virtual(int(number)), resume=_resume(resume), **asked)
    if as_json is not None:
        found.save(as_json)
    if html is not None:
        html.write_text(page(found), encoding="utf-8")
    return found


def _resume(given: str | None) -> Sequence[str] | bool:
    return False if given is None else True if given == "auto" else shlex.split(given)


def explain(rule: str) -> str:
    """Return what there is to say about a rule.

    Raises:
        ConfigError: If there is none of that name.
    """
    assert judging.LOOKS  # the rules are in the table once they are loaded
    return explained(rule)
