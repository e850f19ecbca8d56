"""Keys on a circle of servers, and what moves when one more joins, beside what a hash moves."""

from __future__ import annotations

import math
from itertools import islice, pairwise

from labkit.plans.staleness import draws
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import letter, tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words

_SCALE, _TURN = 2**32, 2654435761
_MIDDLE, _RADIUS = (132, 150), 104
_LEFT, _TOP, _CELL = 300, 62, 22
_POINTS_EACH, _SEED = 3, 3171


def scramble(key: int) -> int:
    """Return where a key stands on a scale of 2**32 (Fibonacci hashing)."""
    return key * _TURN % _SCALE


def points_of(num_servers: int) -> list[tuple[int, int]]:
    """Return (point, server) of all servers round the circle, ascending; a server more moves none."""
    return sorted(
        (int(_SCALE * drawn), server)
        for server in range(num_servers)
        for drawn in islice(draws(_SEED + server), _POINTS_EACH)
    )


def on_circle(key: int, num_servers: int) -> int:
    """Return the server of the first point at or after a key's scramble."""
    points = points_of(num_servers)
    return next((server for point, server in points if point >= scramble(key)), points[0][1])


def by_hash(key: int, num_servers: int) -> int:
    """Return the server whose equal stretch of the scale a key's scramble lies in."""
    return scramble(key) * num_servers // _SCALE


def server_joins(num_servers: int = 3, num_keys: int = 14) -> Story:
    """Return the figure of one more server that joins: on the circle, and by hash.

    Args:
        num_servers: Before, 2 to 5.
        num_keys: Keys 0 and up, 6 to 20.
    """
    within("num_servers", num_servers, 2, 5)
    within("num_keys", num_keys, 6, 20)
    keys, after = range(num_keys), num_servers + 1
    homes = {
        (rule.__name__, servers): [rule(key, servers) for key in keys]
        for rule in (on_circle, by_hash)
        for servers in (num_servers, after)
    }
    moved = {
        name: sum(old != new for old, new in zip(homes[name, num_servers], homes[name, after], strict=True))
        for name in ("on_circle", "by_hash")
    }
    new = letter(num_servers)

    def state(name: str, servers: int, shown: int = 0) -> tuple[Shape, ...]:
        circle = _circle(keys, shown or servers) if name == "on_circle" else _scale(keys, servers)
        return (*circle, *_columns(homes[name, servers], homes[name, num_servers], after, shown or servers))

    before = "A key goes round to the next point, and lives with its server."
    frames = [
        Frame(f"{num_servers} servers with {_POINTS_EACH} points each. {before}", state("on_circle", num_servers)),
        Frame(f"Server {new} joins. Its points cut some stretches in two.", state("on_circle", num_servers, after)),
        Frame(
            f"{moved['on_circle']} of {num_keys} keys move, all of them to {new}. No other key goes anywhere.",
            state("on_circle", after),
        ),
        Frame("The same keys by hash: each server has an equal stretch of the scale.", state("by_hash", num_servers)),
        Frame(
            f"{new} joins, all stretches get shorter, and {moved['by_hash']} of {num_keys} keys move.",
            state("by_hash", after),
        ),
    ]
    on, off = moved["on_circle"], moved["by_hash"]
    title = f"A server joins {num_servers}: {on} of {num_keys} keys move on a circle, {off} by hash"
    numbers = {"moved on the circle": on, "moved by hash": off}
    return Story(title, frames, 300, numbers, telling=2)


def _at(place: int, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * place / _SCALE - math.pi / 2
    return _MIDDLE[0] + radius * math.cos(angle), _MIDDLE[1] + radius * math.sin(angle)


def _arc(first: int, last: int) -> tuple[tuple[float, float], ...]:
    steps = max(2, 64 * (last - first) // _SCALE)
    return tuple(_at(first + (last - first) * step // steps, _RADIUS) for step in range(steps + 1))


def _circle(keys: range, servers: int) -> list[Shape]:
    points = points_of(servers)
    shapes: list[Shape] = []
    previous = points[-1][0] - _SCALE
    for place, server in points:
        shapes.append(Path(_arc(previous, place), tint(server), 5))
        previous = place
    for place, server in points:
        x, y = _at(place, _RADIUS)
        shapes.append(Box("", x - 8, y - 8, 16, 16, tint(server), letter(server)))
    return shapes + _keys(keys, ("keys go", "clockwise to", "the next point"))


def _scale(keys: range, servers: int) -> list[Shape]:
    cuts = [_SCALE * server // servers for server in range(servers + 1)]
    shapes: list[Shape] = []
    for server, (first, last) in enumerate(pairwise(cuts)):
        shapes.append(Path(_arc(first, last), tint(server), 5))
        x, y = _at((first + last) // 2, _RADIUS)
        shapes.append(Box("", x - 8, y - 8, 16, 16, tint(server), letter(server)))
    return shapes + _keys(keys, ("a stretch", "for each server", ""))


def _keys(keys: range, rule: tuple[str, str, str]) -> list[Shape]:
    """Return the keys where they stand, round the rule by which they find a server."""
    middle, top = _MIDDLE[0], _MIDDLE[1] - 14
    shapes: list[Shape] = [
        Words(middle, top + 18 * line, words, 12, "middle", "quiet") for line, words in enumerate(rule) if words
    ]
    for key in keys:
        x, y = _at(scramble(key), _RADIUS - 24)
        shapes.append(Words(x, y + 4, str(key), anchor="middle"))
    return shapes


def _columns(homes: list[int], old: list[int], servers: int, there: int) -> list[Shape]:
    wide = (WIDTH - _LEFT - 10) / servers
    legend = "outlined: a key that moved" if homes != old else "a number: a key"
    shapes: list[Shape] = [Words(_LEFT + 4, _TOP + 120, legend, fill="quiet")]
    for server in range(servers):
        here = server < there
        x = _LEFT + server * wide
        shapes.append(Words(x + 4, _TOP - 16, f"server {letter(server)}" if here else "", bold=True))
        mine = [key for key, home in enumerate(homes) if home == server]
        for place, key in enumerate(mine):
            row, column = divmod(place, max(1, int((wide - 8) // (_CELL + 4))))
            edge = "ink" if old[key] != server else "none"
            left, top = x + 4 + column * (_CELL + 4), _TOP + row * (_CELL + 6)
            shapes.append(Box(f"k{key}", left, top, _CELL, _CELL, tint(server), str(key), edge=edge))
    return shapes
