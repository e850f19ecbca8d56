"""`labkit launch`: run a script in a world, and print what happened."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError, RunError
from labkit.failures import Disk, Kill
from labkit.hardware import Device, find_device
from labkit.scripts import script
from labkit.simulator.stand_ins import SHAPES_ONLY
from labkit.timeline import Timeline
from labkit.timeline.training import training
from labkit.virtual_world import virtual
from labkit.worlds import World, local, run

WORLDS = "virtual:N or local:N, N the number of ranks"


def launch(
    path: Path,
    args: Sequence[str],
    on: str,
    hardware: dict[str, Any],
    *,
    kills: Sequence[str] = (),
    restarts: int = 0,
    kernels: Path | None = None,
    timeout: float | None = None,
    seed: int = 0,
    out: Path | None = None,
    say: Callable[[str], None] = print,
) -> Timeline | None:
    """Run a script, print a summary, and return its timeline.

    Args:
        path: The script.
        args: Its arguments.
        on: The world: "virtual:64" or "local:4".
        hardware: What labkit.virtual takes besides the number of ranks, and launch_us, the microseconds in which a host
            issues one operator; None where nothing was asked for.
        kills: Ranks to kill, and when: "3@step:100", "3@call:20", "3@file:2", "3@1.5s".
        restarts: How often all ranks are started again after that.
        kernels: A Python file that states costs of kernels (labkit.hardware.kernel); it runs before the script.
        timeout: Seconds the run may take, or None.
        seed: Rank r seeds torch, numpy and random with seed + r.
        out: Where the timeline goes: ``.npz`` or ``.json`` for labkit.Timeline.load, ``.html`` to look at.
        say: Shows a line.

    Raises:
        ConfigError: If the world, the hardware or the file cannot be.
        RunError: If the run failed; its timeline is written nevertheless.
    """
    save = _writer(out)
    program = script(path, *args)
    if kernels is not None:
        _state(kernels)
    hardware = {name: value for name, value in hardware.items() if value is not None}
    world = world_of(on, hardware | _failing(on, [kill_of(text) for text in kills], restarts))
    try:
        done = run(program, on=world, timeout=timeout, seed=seed)
    except RunError as error:
        if out is not None and error.timeline is not None:
            save(error.timeline)
            say(f"what was recorded until then: {out}")
        raise
    timeline = done.timeline
    say(f"{program.name} on {world!r}" if on.startswith("virtual") else repr(done))
    if timeline is None:
        return None
    attempts = timeline.tables.get("attempt", {"cause": ()})["cause"]
    for number, cause in enumerate(attempts):
        say(f"attempt {number + 1}           {cause or 'came to its end'}")
    say(timeline.summary())
    for problem in timeline.problems[3:]:  # the summary has said three
        if problem.text.startswith(SHAPES_ONLY):
            say(problem.text)
    for line in training(timeline).lines():
        say(line)
    if out is not None:
        save(timeline)
        say(f"timeline            {out}")
    return timeline


def _state(path: Path) -> None:
    """Run the file that states what kernels cost."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--kernels {path} could not be read ({getattr(error, 'strerror', None) or error}); name a Python file "
            "that calls labkit.hardware.kernel."
        ) from error
    try:
        exec(compile(source, str(path), "exec"), {"__name__": "kernels", "__file__": str(path)})
    except ConfigError:
        raise
    except Exception as error:
        line = next(
            (each.lineno for each in reversed(traceback.extract_tb(error.__traceback__)) if each.filename == str(path)),
            getattr(error, "lineno", None),
        )
        where = "" if line is None else f", line {line}"
        raise ConfigError(f"--kernels {path}{where}: {type(error).__name__}: {error}.") from error


def _writer(out: Path | None) -> Callable[[Timeline], None]:
    """Return what writes a timeline to the file; raises before the run where nothing could."""
    if out is None:
        return lambda timeline: None
    writers: dict[str, Callable[[Timeline], None]] = {
        ".npz": lambda timeline: timeline.save(out),
        ".html": lambda timeline: timeline.to_html(out),
        ".json": lambda timeline: timeline.save(out),
    }
    if out.suffix not in writers:
        raise ConfigError(f"--out {out} must end in one of {', '.join(writers)}.")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.absolute().parent}; make it, or name another file.")
    return writers[out.suffix]


def kill_of(text: str) -> Kill:
    """Return what "3@step:100" asks for.

    Raises:
        ConfigError: If it cannot be read.
    """
    rank, _, when = text.partition("@")
    word, _, number = when.partition(":")
    if rank.isdecimal() and word in ("step", "call", "file") and number.isdecimal():
        moment: dict[str, Any] = {word: int(number)}
        return Kill(int(rank), **moment)
    try:
        if rank.isdecimal() and when.endswith("s"):
            return Kill(int(rank), at_s=float(when[:-1]))
    except ValueError:
        pass
    raise ConfigError(
        f"--kill {text} cannot be read; write RANK@step:N, RANK@call:N, RANK@file:N or RANK@Ts: 3@step:100, 3@1.5s."
    )


def _failing(on: str, kills: Sequence[Kill], restarts: int) -> dict[str, Any]:
    if not kills and not restarts:
        return {}
    if not on.startswith("virtual"):
        raise ConfigError(f"--kill and --restarts need virtual time, and {on} runs on this host; use --on virtual:N.")
    return {"failures": list(kills), "restarts": restarts, "disk": Disk(Path.cwd())}


def world_of(on: str, hardware: dict[str, Any]) -> World:
    """Return the world that was asked for.

    Raises:
        ConfigError: If it cannot be.
    """
    kind, _, number = on.partition(":")
    if kind not in ("virtual", "local") or not number.isdecimal():
        raise ConfigError(f"--on {on} is not a world; use {WORLDS}.")
    if kind == "virtual":
        if (launch_us := hardware.pop("launch_us", None)) is not None:
            hardware["gpu"] = _issued_in(launch_us, hardware.get("gpu", "h100"))
        return virtual(int(number), **hardware)
    if hardware:
        raise ConfigError(
            f"--{min(hardware).replace('_', '-')} describes virtual hardware, and {on} runs on this host; "
            f"use --on virtual:{number}, or leave the option out."
        )
    return local(int(number))


def _issued_in(launch_us: float, gpu: str) -> Device:
    """Return the device, with a host that takes so many microseconds to issue one operator."""
    if not 0 <= launch_us <= 1e6:
        raise ConfigError(f"--launch-us {launch_us:g} is not a time; give 0 to 1,000,000 microseconds, such as 8.")
    source = f"assumption: --launch-us {launch_us:g}"
    return replace(find_device(gpu), launch_ns=round(launch_us * 1000), launch_source=source)
