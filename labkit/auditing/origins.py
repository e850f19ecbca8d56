"""Where what a line uses was made: the assignment that a program's text shows, followed from name to name."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache

_MOST_HOPS = 4
_KEEPS = ("append", "extend", "add", "update")
_CHANGES = (*_KEEPS, "insert", "put", "copy_", "add_", "sub_")
_CLOCKS = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns")
_BY_CHANCE = (*_CLOCKS, "exists", "is_file", "getmtime", "glob", "listdir", "is_completed", "is_success")
"""What answers otherwise sooner or later."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef)


def origin(source: str, callee: str = "", argument: int | str = 0) -> str:
    """Return the line that made what is given to a call, the source itself where the text does not say.

    Args:
        source: The file:line of the call.
        callee: The last part of its name, such as "all_gather"; "" for the first call of the line.
        argument: Which of its arguments: a position or a keyword.
    """
    for call in _calls(source, callee):
        if isinstance(argument, str):
            given = next((one.value for one in call.keywords if one.arg == argument), None)
        else:
            given = call.args[argument] if argument < len(call.args) else None
        if given is not None:
            return _made(source, given) or source
    return source


def first_call(source: str, callee: str) -> str:
    """Return the first line of a file that calls something by this name, "" for none."""
    tree, _ = _tree(source)
    found = [
        node.lineno
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Call) and _name(node) == callee
    ]
    return _at(source, min(found)) if found else ""


def in_step(source: str, callee: str) -> str:
    """Return the first line on which an optimizer that a file defines calls something as it steps, "" for none."""
    tree, _ = _tree(source)
    found = [
        node.lineno
        for scope in (ast.walk(tree) if tree is not None else ())
        if isinstance(scope, ast.FunctionDef) and scope.name == "step"
        for node in ast.walk(scope)
        if isinstance(node, ast.Call) and _name(node) == callee
    ]
    return _at(source, min(found)) if found else ""


def receiver(source: str, callee: str) -> str:
    """Return the line that made the object whose method is called on a line, the source where the text does not say."""
    for call in _calls(source, callee):
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            return _made(source, call.func.value) or source
    return source


def first_made(source: str) -> str:
    """Return the line that made the first name on the right of an assignment, else the source."""
    tree, number = _tree(source)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign) and node.lineno <= number <= _end(node):
            names = sorted(
                (one for one in ast.walk(node.value) if isinstance(one, ast.Name)), key=lambda one: one.col_offset
            )
            return next((made for one in names if (made := _made(source, one))), source)
    return source


def is_handed_in(source: str, callee: str) -> bool:
    """Return whether a call is given a parameter of the function that it stands in."""
    tree, number = _tree(source)
    return tree is not None and any(
        _names(argument) & _parameters(_scope(tree, number))
        for call in _calls(source, callee)
        for argument in call.args
    )


def decided(source: str) -> str:
    """Return the line that made the name an `if`, a `while` or a conditional expression asks for, else the source."""
    tree, number = _tree(source)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.If | ast.While | ast.IfExp) or not isinstance(node.test, ast.Name):
            continue
        if node.test.lineno <= number <= _end(node.test):
            return _made(source, node.test) or source
    return source


def decided_by_chance(source: str) -> str:
    """Return the first `if` or `while` of a file that asks a clock, a file or a call under way, "" for none."""
    tree, _ = _tree(source)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.If | ast.While):
            asked: list[ast.AST] = [node.test]
            for name in _names(node.test):
                made = _assignment(tree, name, node.lineno) if tree is not None else None
                asked += [made[1]] if made is not None and made[1] is not None else []
            if any(_name(one) in _BY_CHANCE for part in asked for one in ast.walk(part) if isinstance(one, ast.Call)):
                return _at(source, node.lineno)
    return ""


def reads_clock(source: str) -> bool:
    """Return whether a file's text asks a clock."""
    tree, _ = _tree(source)
    clocks = (*_CLOCKS, "elapsed_time", "default_timer")
    return tree is not None and any(_name(one) in clocks for one in ast.walk(tree) if isinstance(one, ast.Call))


def sets_rate(source: str) -> str:
    """Return the last line of a file that assigns a learning rate (`group["lr"] = ...`), "" for none."""
    tree, _ = _tree(source)
    found = [
        node.lineno
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Assign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Subscript) and getattr(target.slice, "value", None) == "lr"
    ]
    return _at(source, max(found)) if found else ""


def condition_of_block(source: str) -> str:
    """Return the line that decides how the `with` block around a line is entered, the source where none does."""
    tree, number = _tree(source)
    found = source
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.With) and node.lineno <= number <= _end(node):
            for item in node.items:
                one = item.context_expr
                if isinstance(one, ast.IfExp) and isinstance(one.test, ast.Name):
                    found = _made(_at(source, node.lineno), one.test) or _at(source, node.lineno)
                else:
                    found = _at(source, node.lineno)
    return found


def kept_at(source: str) -> str:
    """Return the line that puts what a line makes into a container or an attribute, "" where no line does."""
    tree, number = _tree(source)
    scope = _scope(tree, number) if tree is not None else None
    made = {
        target.id
        for node in _within(scope)
        if isinstance(node, ast.Assign) and node.lineno <= number <= _end(node)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in sorted(_within(scope), key=lambda node: getattr(node, "lineno", 0)):
        if getattr(node, "lineno", 0) <= number or not made:
            continue
        stores = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript | ast.Attribute)
        appends = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPS
        if (stores or appends) and _names(node) & made:
            return _at(source, int(getattr(node, "lineno", 0)))
    return ""


def keeps_first(source: str, function: str) -> str:
    """Return the first line at which a function of a file keeps something beyond its own end, "" for none."""
    tree, _ = _tree(source)
    found = []
    for scope in ast.walk(tree) if tree is not None else ():
        if not isinstance(scope, _SCOPES) or scope.name != function:
            continue
        for node in _within(scope):
            stores = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript | ast.Attribute)
            adds = isinstance(node, ast.AugAssign)
            calls = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _name(node) in _CHANGES
            if stores or adds or calls:
                found.append(int(getattr(node, "lineno", 0)))
    return _at(source, min(found)) if found else ""


def first_of(source: str) -> str:
    """Return the first line of a function at which it hands something out or loops, the source for none."""
    tree, number = _tree(source)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, _SCOPES) and node.lineno == number:
            acts = [one.lineno for one in ast.walk(node) if isinstance(one, ast.For | ast.Return | ast.Yield)]
            return _at(source, min(acts)) if acts else source
    return source


def _made(source: str, given: ast.expr) -> str:
    """Return the line of the last assignment to what an expression is made of."""
    tree, number = _tree(source)
    found = ""
    for _ in range(_MOST_HOPS):
        name = next((node.id for node in ast.walk(given) if isinstance(node, ast.Name)), "")
        at = None if tree is None or not name else _assignment(tree, name, number)
        if at is None:
            break
        found, value = _at(source, at[0]), at[1]
        if not isinstance(value, ast.Name | ast.Subscript) or at[0] >= number:
            break
        given, number = value, at[0]
    return found


def _assignment(tree: ast.Module, name: str, number: int) -> tuple[int, ast.expr | None] | None:
    """Return line and value of the last assignment to a name before a line, in its function, else in the module."""
    scope = _scope(tree, number)
    if scope is not tree and name in _parameters(scope):
        return None
    for where, before in ((scope, number), (tree, 1 << 30)):
        found = [
            (node.lineno, node.value)
            for node in _within(where)
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno < before and name in _targets(node)
        ]
        if found:
            return max(found, key=lambda one: one[0])
    return None


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)} - {
        one.id
        for target in targets
        for part in ast.walk(target)
        if isinstance(part, ast.Subscript | ast.Attribute)
        for one in ast.walk(part)
        if isinstance(one, ast.Name)
    }


def _parameters(scope: ast.AST) -> set[str]:
    if not isinstance(scope, _SCOPES):
        return set()
    return {one.arg for one in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)}


def _calls(source: str, callee: str) -> Iterator[ast.Call]:
    tree, number = _tree(source)
    for node in ast.walk(tree) if tree is not None else ():
        is_here = isinstance(node, ast.Call) and node.lineno <= number <= _end(node)
        if isinstance(node, ast.Call) and is_here and (not callee or _name(node) == callee):
            yield node


def _name(call: ast.Call) -> str:
    """Return the last part of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else str(getattr(call.func, "id", ""))


def _scope(tree: ast.Module, number: int) -> ast.AST:
    inside = [node for node in ast.walk(tree) if isinstance(node, _SCOPES) and node.lineno <= number <= _end(node)]
    return max(inside, key=lambda node: node.lineno) if inside else tree


def _within(scope: ast.AST | None) -> Iterator[ast.AST]:
    """Yield the nodes of a scope and not those of functions inside it."""
    for node in () if scope is None else ast.iter_child_nodes(scope):
        if not isinstance(node, _SCOPES):
            yield node
            yield from _within(node)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _end(node: ast.AST) -> int:
    return int(getattr(node, "end_lineno", 0) or 0)


def _at(source: str, number: int) -> str:
    return f"{source.rpartition(':')[0]}:{number}"


def _tree(source: str) -> tuple[ast.Module | None, int]:
    file, _, number = source.rpartition(":")
    linecache.checkcache(file)
    return (_parsed("".join(linecache.getlines(file))), int(number)) if number.isdecimal() else (None, 0)


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None
