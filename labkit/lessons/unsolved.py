"""An exercise nobody has solved yet ends no notebook: cells that need it say so, and all others run.

Before a notebook's cell runs, its names are followed: through the functions it calls, and through what earlier cells
would have made. Where they lead to a stub, which raises ``NotImplementedError("Exercise 2.4: Ring plan")``, the cell
prints what it needs in place of running. Nothing is called to find that out.
"""

from __future__ import annotations

import ast
import builtins
import dis
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

_STUB = re.compile(r"Exercise (\d+\.\d+): .")
_ASKING = {"check", "challenge", "hint", "lend", "mine"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_QUIET = (*_DEFINITIONS, ast.Import, ast.ImportFrom)
_MOST_HELD = 64


@dataclass(frozen=True, order=True)
class Need:
    """An exercise that is not solved, as its stub calls it.

    Attributes:
        number: "2.4".
        name: The function or class that is left to write, "ring_plan".
    """

    number: str
    name: str


@dataclass
class Guard:
    """Knows what a notebook's cells need; IPython calls ``visit`` with each cell's syntax tree before it runs.

    Attributes:
        namespace: The notebook's.
        waiting: Names that cells would have bound that did not run, and what they needed.
    """

    namespace: dict[str, Any]
    waiting: dict[str, frozenset[Need]] = field(default_factory=dict)

    def visit(self, tree: ast.Module) -> ast.Module:
        """Return the cell, or one that defines what it can and prints what it needs."""
        found = self.needs(tree)
        if not found:
            return tree
        from labkit.lessons.lending import what_to_do

        told = ast.parse(f"print({what_to_do(sorted(found))!r})")
        kept = [each for each in tree.body if isinstance(each, _QUIET) and not self._waits(each)]
        return ast.Module([*kept, *told.body], type_ignores=[])

    def needs(self, tree: ast.Module) -> frozenset[Need]:
        """Return the unsolved exercises that a cell needs to run, and keep in mind what then is not there."""
        own = {each.name: each for each in tree.body if isinstance(each, _DEFINITIONS)}
        made: set[str] = set(own)
        kept: dict[str, set[str]] = {}  # by name: what this cell puts into it without calling it
        found: set[Need] = set()
        for statement in tree.body:
            if isinstance(statement, _DEFINITIONS):
                for name in _read_at_definition(statement):
                    found |= self.waiting.get(name, frozenset()) if name not in made else frozenset()
            elif not isinstance(statement, _QUIET):
                inside = set(_given_inside(statement))
                called, read = set(_called(statement)) - inside, set(_read(statement)) - inside
                held = set[str]().union(*(kept.get(name, set()) for name in read))
                if not called.isdisjoint(kept):
                    called, read = called | held, read | held
                for name in read:
                    if name in own:
                        found |= self._of_tree(own[name], own, {name}) if name in called else set()
                    elif name not in made:
                        found |= self._of_name(name, set()) if name in called else self.waiting.get(name, frozenset())
                made |= set(_bound(statement))
                kept |= dict.fromkeys(_bound(statement), (read | held) - called)
        missing: set[str] = set()
        for statement in tree.body:
            quiet = isinstance(statement, _QUIET) and missing.isdisjoint(_read_at_definition(statement))
            names = [statement.name] if isinstance(statement, _DEFINITIONS) else _bound(statement)
            if found and not quiet:
                missing |= set(names)
                self.waiting |= dict.fromkeys(names, frozenset(found))
            else:
                for name in names:
                    self.waiting.pop(name, None)
        return frozenset(found)

    def _waits(self, statement: ast.stmt) -> bool:
        names = [statement.name] if isinstance(statement, _DEFINITIONS) else _bound(statement)
        return not self.waiting.keys().isdisjoint(names)

    def _of_tree(self, node: ast.stmt, own: Mapping[str, ast.stmt], seen: set[str]) -> set[Need]:
        """Return what a function or class of this very cell needs."""
        found: set[Need] = set()
        for name in set(_read(node)) - set(_bound(node)):
            if name in own and name not in seen:
                seen.add(name)
                found |= self._of_tree(own[name], own, seen)
            elif name not in own:
                found |= self._of_name(name, set())
        return found

    def _of_name(self, name: str, seen: set[int]) -> set[Need]:
        if name in self.waiting:
            return set(self.waiting[name])
        return set(self._of_value(self.namespace[name], seen)) if name in self.namespace else set()

    def _of_value(self, value: object, seen: set[int]) -> Iterator[Need]:
        """Yield what calling or showing a value of the notebook needs."""
        if id(value) in seen:
            return
        seen.add(id(value))
        for function in self._functions(value, seen):
            code = function.__code__
            numbers = list(_stub_numbers(code))
            if numbers:
                yield Need(numbers[0], function.__qualname__.partition(".")[0])
                continue
            if function.__globals__.get("__name__") == "__main__":
                for name in _globals_read(code):
                    yield from self._of_name(name, seen)
            for cell in function.__closure__ or ():
                try:
                    yield from self._of_value(cell.cell_contents, seen)
                except ValueError:  # an empty cell
                    continue

    def _functions(self, value: object, seen: set[int]) -> Iterator[types.FunctionType]:
        """Yield the functions that a value of the notebook is or holds."""
        if isinstance(value, types.FunctionType):
            yield value
            if wrapped := getattr(value, "__wrapped__", None):
                yield from self._functions(wrapped, seen)
        elif isinstance(value, types.MethodType):
            yield from self._functions(value.__func__, seen)
        elif isinstance(value, partial):
            yield from self._functions(value.func, seen)
        elif isinstance(value, list | tuple | dict):
            held = list(value.values() if isinstance(value, dict) else value)[:_MOST_HELD]
            for each in held:
                if callable(each):
                    yield from self._functions(each, seen)
        else:
            kind = value if isinstance(value, type) else type(value)
            for base in kind.__mro__:
                if base.__module__ == "__main__":
                    for each in vars(base).values():
                        function = getattr(each, "__func__", None) or getattr(each, "fget", None) or each
                        if isinstance(function, types.FunctionType):
                            yield function


def install() -> None:
    """Have this kernel's cells say what they need, if this is a notebook; once, whoever calls it again."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None and not any(isinstance(each, Guard) for each in shell.ast_transformers):
        shell.ast_transformers.append(Guard(shell.user_ns))


def _stub_numbers(code: types.CodeType) -> Iterator[str]:
    """Yield the number of the exercise that a function, or one inside it, leaves to write."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _stub_numbers(constant)
        elif isinstance(constant, str) and "NotImplementedError" in code.co_names and (found := _STUB.match(constant)):
            yield found[1]


def _globals_read(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and not hasattr(builtins, str(instruction.argval)):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_read(constant)


def _read(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement reads; what is only handed to a check or asked a hint for is not needed."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ASKING:
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id == "labkit":
            return
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _read(child)


def _called(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement does more with than keep them: a table of functions calls none of them."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        yield from _called(node.value) if node.value is not None else ()
    elif isinstance(node, ast.Name | ast.Constant):
        return
    elif isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set):
        for child in ast.iter_child_nodes(node):
            yield from _called(child)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("partial", "functools.partial"):
        for each in (*node.args, *(keyword.value for keyword in node.keywords)):
            yield from _called(each)
    else:
        yield from _read(node)


def _read_at_definition(node: ast.AST) -> Iterator[str]:
    """Yield the names that defining a function or a class reads: decorators, defaults, annotations, bases."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        annotations = [each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg)]
        parts = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults, *annotations, node.returns]
        for part in parts:
            yield from _read(part) if part is not None else ()
    elif isinstance(node, ast.ClassDef):
        for each in [*node.decorator_list, *node.bases]:
            yield from _read(each)
        for statement in node.body:
            is_function = isinstance(statement, _DEFINITIONS)
            yield from _read_at_definition(statement) if is_function else _read(statement)


def _given_inside(node: ast.stmt) -> Iterator[str]:
    """Yield the names that loops, comprehensions and with blocks of a statement give a value before it reads them."""
    for each in ast.walk(node):
        if isinstance(each, ast.For | ast.AsyncFor | ast.comprehension):
            given: ast.expr | None = each.target
        else:
            given = each.optional_vars if isinstance(each, ast.withitem) else None
        if given is not None:
            yield from (name.id for name in ast.walk(given) if isinstance(name, ast.Name))


def _bound(node: ast.stmt) -> Iterable[str]:
    """Return the names that a statement binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    if isinstance(node, _DEFINITIONS):
        names += [node.name, *(each.arg for each in ast.walk(node) if isinstance(each, ast.arg))]
    return names
