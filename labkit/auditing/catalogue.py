"""The rules: what each looks at, why it matters, where people met it, which lesson explains it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from labkit.auditing.finding import Finding
from labkit.auditing.seen import Seen
from labkit.errors import ConfigError


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: What findings and `labkit explain` call it.
        holds: What is true of a program that keeps it.
        seen: What is looked at.
        why: What goes wrong where it is broken.
        todo: What to do.
        lesson: The lesson that explains it, such as "04".
        sources: Where people met it.
    """

    name: str
    holds: str
    seen: str
    why: str
    todo: str
    lesson: str
    sources: str = ""


Look = Callable[[Seen], Iterable[Finding]]
RULES: dict[str, Rule] = {}
"""Name -> rule, in the order of the table."""


def rule(name: str, holds: str, *, seen: str, why: str, todo: str, lesson: str, sources: str = "") -> str:
    """Return the name of a rule that is now in the table."""
    RULES[name] = Rule(name, holds, seen, why, todo, lesson, sources)
    return name


def explained(name: str) -> str:
    """Return what there is to say about a rule.

    Raises:
        ConfigError: If there is none of that name.
    """
    if name not in RULES:
        raise ConfigError(f"There is no rule {name!r}; there are {', '.join(sorted(RULES))}.")
    one = RULES[name]
    lines = [
        f"{one.name}: {one.holds}",
        "",
        f"Looked at   {one.seen}",
        f"Matters     {one.why}",
        f"Do          {one.todo}",
    ]
    if one.sources:
        lines.append(f"Seen in     {one.sources}")
    lines.append(f"Lesson      {one.lesson}")
    return "\n".join(lines)


def table() -> str:
    """Return the rules as docs/audit.md shows them, in Markdown."""
    lines = ["| rule | holds where | what is looked at | lesson | met in |", "|---|---|---|---|---|"]
    for one in RULES.values():
        lines.append(f"| `{one.name}` | {one.holds} | {one.seen} | {one.lesson} | {one.sources} |")
    return "\n".join(lines)
