"""`labkit crash-test`: crash a script at every moment, restart it as torchrun would, and say what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labkit.commands.launch_script import world_of
from labkit.crashes import CrashReport, crash_points
from labkit.errors import ConfigError
from labkit.scripts import script
from labkit.virtual_world import VirtualWorld


def crash_test(
    path: Path,
    args: Sequence[str],
    on: str,
    hardware: dict[str, Any],
    *,
    restarts: int = 2,
    limit: int = 200,
    seed: int = 0,
    timeout: float | None = 120.0,
    out: Path | None = None,
    say: Callable[[str], None] = print,
) -> CrashReport:
    """Return what became of each crash of a script, which runs in copies of the current folder.

    Args:
        path: The script.
        args: Its arguments.
        on: The world: "virtual:4".
        hardware: What labkit.virtual takes besides; None where nothing was asked for.
        restarts: How often ranks are started again before the verdict is that they cannot.
        limit: How many points are tried at most.
        seed: Rank r seeds torch, numpy and random with seed + r.
        timeout: Seconds of real time that one run may take.
        out: Where the report goes as JSON.
        say: Shows a line.

    Raises:
        ConfigError: If the world, the hardware or the file cannot be, or two runs without a crash differ.
        RunError: If the script fails without a crash.
    """
    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError(f"--json {out}: there is no folder {out.absolute().parent}; make it, or name another file.")
    world = world_of(on, {name: value for name, value in hardware.items() if value is not None})
    if not isinstance(world, VirtualWorld):
        raise ConfigError(f"--on {on} cannot be crashed at the same moment twice; use --on virtual:N.")
    report = crash_points(
        script(path, *args), on=world, restarts=restarts, limit=limit, folder=Path.cwd(), timeout=timeout, seed=seed,
        say=say,
    )  # fmt: skip
    say(repr(report))
    if out is not None:
        out.write_text(json.dumps(report.as_dict(), indent=2) + "\n")
        say(f"report              {out}")
    return report
