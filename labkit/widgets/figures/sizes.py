"""Which sizes a figure can be drawn in."""

from __future__ import annotations

from labkit.errors import ConfigError


def within(name: str, value: int, least: int, most: int) -> None:
    """Raise ConfigError where a size cannot be drawn."""
    if not least <= value <= most:
        raise ConfigError(f"{name}={value} was asked for; the figure shows {least} to {most}.")
