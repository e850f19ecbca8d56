"""Bytes, times and bandwidths in words: ``parse_bytes("16 MiB")``, ``format_time(12_300_000)`` -> ``"12.3 ms"``.

Decimal prefixes are powers of 1000 (KB, MB, GB), binary ones of 1024 (KiB, MiB, GiB). Times are integer nanoseconds,
bandwidths bytes per second; Gbit/s counts bits.
"""

from __future__ import annotations

import math
import re

from labkit.errors import ConfigError

BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
TIMES_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
BANDWIDTHS_BPS = {f"{unit}/s": float(size) for unit, size in BYTES.items()} | {
    "bit/s": 1 / 8,
    "Kbit/s": 1e3 / 8,
    "Mbit/s": 1e6 / 8,
    "Gbit/s": 1e9 / 8,
    "Tbit/s": 1e12 / 8,
}
_ALSO = {"kB": "KB", "µs": "us", "μs": "us", "kbit/s": "Kbit/s"}
_QUANTITY = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(\S+)\s*")


def parse_bytes(text: str) -> int:
    """Return the bytes that ``"16 MiB"``, ``"1.5 GB"`` or ``"100 B"`` stand for.

    Raises:
        ConfigError: If it is not a number and a unit, or not a whole number of bytes.
    """
    value = _parse(text, {unit: float(size) for unit, size in BYTES.items()}, "a size")
    if value != round(value):
        raise ConfigError(f"{text!r} is {value:g} bytes; a size must be a whole number of bytes.")
    return round(value)


def parse_time(text: str) -> int:
    """Return the nanoseconds that ``"12.3 ms"`` or ``"2 s"`` stand for, rounded.

    Raises:
        ConfigError: If it is not a number and a unit.
    """
    return round(_parse(text, {unit: float(size) for unit, size in TIMES_NS.items()}, "a time"))


def parse_bandwidth(text: str) -> float:
    """Return the bytes per second that ``"25 GB/s"`` or ``"200 Gbit/s"`` stand for.

    Raises:
        ConfigError: If it is not a number and a unit.
    """
    return _parse(text, BANDWIDTHS_BPS, "a bandwidth")


def format_bytes(num_bytes: float, *, binary: bool = False) -> str:
    """Return the size with three significant digits and the largest unit that fits, decimal unless binary."""
    units = ("B", "KiB", "MiB", "GiB", "TiB") if binary else ("B", "KB", "MB", "GB", "TB")
    return _format(num_bytes, [(unit, float(BYTES[unit])) for unit in units])


def format_time(time_ns: float) -> str:
    """Return the time with three significant digits and the largest unit of ns, µs, ms, s that fits."""
    return _format(time_ns, [(unit, float(TIMES_NS[_ALSO.get(unit, unit)])) for unit in ("ns", "µs", "ms", "s")])


def format_bandwidth(bytes_per_second: float) -> str:
    """Return the bandwidth in B/s to TB/s (1 GB/s is 1e9 bytes per second) with three significant digits."""
    return _format(bytes_per_second, [(f"{unit}/s", float(BYTES[unit])) for unit in ("B", "KB", "MB", "GB", "TB")])


def format_percent(share: float, digits: int = 0) -> str:
    """Return a share of 1 as views say it: "64 %"."""
    return f"{100 * share:.{digits}f} %"


def _parse(text: str, units: dict[str, float], what: str) -> float:
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    unit = _ALSO.get(match[2], match[2]) if match else ""
    if match is None or unit not in units:
        raise ConfigError(f"{text!r} is not {what}; write a number and one of {', '.join(units)}.")
    value = float(match[1].replace("_", "")) * units[unit]
    if not math.isfinite(value):
        raise ConfigError(f"{text!r} is too large for {what}.")
    return value


def _format(value: float, units: list[tuple[str, float]]) -> str:
    if not math.isfinite(value):
        raise ConfigError(f"{value} has no unit; give a finite number.")
    for place, (unit, size) in enumerate(units):
        digits = _three_digits(value / size)
        if abs(float(digits)) < (units[place + 1][1] / size if place + 1 < len(units) else math.inf):
            return f"{digits} {unit}"
    raise AssertionError("the last unit always fits")


def _three_digits(value: float) -> str:
    if value == round(value) and abs(value) < 1e15:
        return str(round(value)) if abs(value) < 1e4 else f"{value:.0f}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    return f"{rounded:.{max(decimals, 0)}f}".rstrip("0").rstrip(".") if decimals > 0 else f"{rounded:.0f}"
