"""What an answer needs beyond its own cell: the statements that make the names it uses.

Learners put a helper, a constant or an import into a cell of its own, and their kernel knows it. Such statements are
taken along; the rest of their cells is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from labkit.lessons.left_beside import is_module
from labkit.lessons.statements import Code, Statement, bound_by, imports_all, parsed


def needed(
    names: Collection[str], code: Code, before: int, settled: Mapping[str, tuple[int, int]], given: Collection[str]
) -> list[Statement]:
    """Return the statements that names stand on, directly or through others, in the file's order.

    Of a name that several cells make, the last above `before` counts, as in a notebook run from its top; else the last.

    Args:
        names: What an answer takes from outside itself.
        code: The submission.
        before: The place of the cell that checks the answer.
        settled: What runs before and where it was made; that is not returned again.
        given: Names that stay as they were handed out.
    """
    found: dict[tuple[int, int], Statement] = {}
    waiting, seen = sorted(names), set(given)
    everything = {each.order: each for each in code.all() if imports_all(each.tree)}
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        makers = [each for each in code.making(name) if not each.is_gap]
        last = max((each for each in makers if each.position < before), key=_order, default=None)
        last = last or max(makers, key=_order, default=None)
        if last is None:
            if everything and not (name in settled or name.startswith("<")):
                found |= everything
                waiting += sorted(name for each in everything.values() for name in each.uses)
            continue
        if settled.get(name) == last.order:
            continue
        for each in _made_by(name, _remade(name, last, makers, code), before, code):
            if each.order not in found:
                found[each.order] = each
                waiting += sorted(each.uses | (each.binds if each.writes_file else frozenset()))
    return [found[order] for order in sorted(found)]


def _remade(name: str, last: Statement, makers: Sequence[Statement], code: Code) -> list[Statement]:
    """Return a name's last maker, and before it those of which that makes it anew: ``double = cache(double)``."""
    chain, goes_on = [last], code.takes_before_it_makes(name, last.position)
    for each in sorted(makers, key=_order, reverse=True):
        if not goes_on:
            break
        if each.position != last.position and each.order < last.order:
            chain.append(each)
            goes_on = name in each.remakes
    return chain


def _made_by(name: str, chain: Sequence[Statement], before: int, code: Code) -> Iterator[Statement]:
    """Yield the statements that make a name what it is, given the last that binds it and what that is made of."""
    last, first, of_chain = chain[0], chain[-1], set(chain)
    calling = set(code.filling(name))
    for each in sorted({*code.making(name), *code.changing(name), *calling}, key=_order):
        in_time = each.position < before or last.position >= before
        if name.startswith("<"):  # a file or the environment, which each of them changes
            if in_time:
                yield each
            continue
        beside = each.position == last.position
        counts = beside or each in of_chain or (first.order < each.order and in_time)
        makes = each in of_chain or (beside and name in each.binds)
        changes = name in (each.changes if beside else each.fills) or each in calling
        if counts and (makes or (changes and not last.is_import)):
            yield each


def reached(names: Collection[str], statements: Sequence[Statement]) -> tuple[list[Statement], set[str]]:
    """Return the statements of an answer that its names stand on, and what these take from elsewhere."""
    found: list[Statement] = []
    waiting, seen = set(names), set[str]()
    while waiting:
        seen.add(name := waiting.pop())
        for each in statements:
            if each not in found and (name in each.binds or name in each.changes):
                found.append(each)
                waiting |= each.uses - seen
    own = {name for each in statements for name in each.binds}
    return sorted(found, key=_order), {name for each in found for name in each.uses} - own


def unread(names: Collection[str], code: Code, given: Collection[str]) -> tuple[list[str], list[int]]:
    """Return which names nothing makes that can be read, and the cells that make what only a running notebook knows.

    Args:
        names: What an answer and what it takes along use.
        code: The submission.
        given: Names that are there.
    """
    if any(imports_all(each.tree) for each in code.all()):
        return [], []
    made = {name for each in code.all() for name in each.binds | each.sets_when_called}
    missing = {each for each in set(names) - made - set(given) if is_module(each) or not each.startswith("<")}
    return sorted(missing), sorted({each.position for each in code.all() if each.is_computed})


def _order(statement: Statement) -> tuple[int, int]:
    return statement.order


def names_made(source: str) -> set[str]:
    """Return the names that a cell of Python makes at its top."""
    tree = parsed(source)
    return {name for statement in (tree.body if tree else []) for name in bound_by(statement)}
