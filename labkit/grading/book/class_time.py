"""Times as a class writes and reads them: in its own zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from labkit.errors import ConfigError
from labkit.grading.plain_text import plain_text

_YEARS = range(1990, 2201)
"""Beyond them a time is a mistake, and near the ends of the calendar no zone can be taken off it."""


def zone_named(name: str) -> tzinfo:
    """Return the time zone of this name, "Europe/Berlin".

    Raises:
        ConfigError: If there is none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"there is no time zone {name!r}; write one such as Europe/Berlin or America/New_York"
        ) from None


def moment(text: str, zone: tzinfo | None = None) -> datetime:
    """Return the moment that an ISO 8601 text names.

    Args:
        text: "2026-12-01T18:00", or with its own zone "2026-12-01T18:00+01:00".
        zone: Of a text that names none; without one it must.

    Raises:
        ConfigError: If it is no time, has no zone, or names an hour that the clocks leave out or go through twice.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if found is None or not any(sign in text.strip()[8:] for sign in "T :"):
        raise ConfigError(f"{plain_text(text, 50)!r} is not a time; write 2026-12-01T18:00+01:00, or ...Z for UTC")
    if found.year not in _YEARS:
        raise ConfigError(f"{text!r} is not in the years {_YEARS[0]} to {_YEARS[-1]}; correct it")
    return in_zone(found, zone, text)


def in_zone(found: datetime, zone: tzinfo | None, text: str) -> datetime:
    """Return a moment with its zone: its own, else this one.

    Raises:
        ConfigError: If there is neither, or the clocks of the zone never or twice show that time.
    """
    if found.tzinfo is not None:
        return found
    if zone is None or zone is UTC:
        raise ConfigError(
            f"{text!r} has no time zone; write 2026-12-01T18:00+01:00, ...Z for UTC, or set the class's with "
            "labkit gradebook zone Europe/Berlin"
        )
    first, second = found.replace(tzinfo=zone, fold=0), found.replace(tzinfo=zone, fold=1)
    if first.utcoffset() != second.utcoffset():
        raise ConfigError(
            f"the clocks of {zone} change at {text!r}: that time happens twice or not at all; write it with an "
            "offset, such as "
            f"{first.astimezone(UTC).isoformat(timespec='minutes')} or "
            f"{second.astimezone(UTC).isoformat(timespec='minutes')}"
        )
    return first


def shown(found: datetime, zone: tzinfo) -> str:
    """Return a moment as people of a zone read it: "2026-12-01 18:00 CET"."""
    return f"{found.astimezone(zone):%Y-%m-%d %H:%M %Z}"
