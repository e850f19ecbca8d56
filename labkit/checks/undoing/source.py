"""The text of a learner's functions, and code of another text put into the functions that are there."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any

from labkit.checks.failures import NOT_THEIRS

_NOT_CHANGED = (*NOT_THEIRS, "<lent ")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Key = tuple[str, int]


@dataclass(frozen=True)
class Text:
    """What a cell or a file says, and the functions and classes in it that are looked at."""

    file: str
    text: str
    names: tuple[str, ...]

    def line(self, number: int) -> str:
        """Return one of its lines, counted from 1, without what is left and right of it."""
        return self.text.splitlines()[number - 1].strip()

    def parsed(self) -> list[ast.stmt]:
        """Return the syntax of the functions and classes that are looked at.

        Raises:
            SyntaxError: If the text is no program, such as a cell with a magic command.
        """
        tree = ast.parse(self.text)
        return [each for each in tree.body if isinstance(each, _DEFINITIONS) and each.name in self.names]


def texts_of(functions: Sequence[Callable[..., Any]]) -> list[Text]:
    """Return the texts of a learner's functions and classes, with what stands beside them in the same cell and is used.

    Lent functions, labkit's and those whose text is not known any more have none.
    """
    wanted: dict[str, list[str]] = {}
    for each in functions:
        found = next(_functions(each), None)
        if found is not None and not any(part in found.__code__.co_filename for part in _NOT_CHANGED):
            wanted.setdefault(found.__code__.co_filename, []).append(getattr(unwrap(each), "__name__", ""))
    texts = []
    for file, names in wanted.items():
        text = "".join(linecache.getlines(file))
        try:
            texts.append(Text(file, text, tuple(_used(ast.parse(text), names))))
        except (SyntaxError, ValueError):
            continue
    return [each for each in texts if each.names]


def _used(tree: ast.Module, names: Sequence[str]) -> list[str]:
    """Return which definitions of a module are named, or used by those."""
    defined = {each.name: each for each in tree.body if isinstance(each, _DEFINITIONS)}
    found, waiting = dict[str, None](), [name for name in names if name in defined]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = None
            inside = (each.id for each in ast.walk(defined[name]) if isinstance(each, ast.Name))
            waiting += [each for each in inside if each in defined]
    return [name for name in defined if name in found]


def _functions(found: Any) -> Iterator[FunctionType]:
    """Yield a function, or the functions of a class; whatever wraps them is taken off."""
    found = unwrap(getattr(found, "__func__", found)) if callable(getattr(found, "__func__", found)) else found
    if isinstance(found, FunctionType):
        yield found
    elif isinstance(found, property):
        for each in (found.fget, found.fset):
            yield from _functions(each)
    elif isinstance(found, type):
        for each in vars(found).values():
            if not isinstance(each, type):
                yield from _functions(each)


class Live:
    """The functions of one text that are there, whose code can be another for a while."""

    def __init__(self, file: str, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.file = file
        self._found: dict[int, FunctionType] = {}
        self._caches: list[Callable[[], object]] = []
        waiting: list[Any] = list(functions.values())
        for each in functions.values():
            for one in _functions(each):
                waiting += one.__globals__.values()
        for each in waiting:
            clear = getattr(each, "cache_clear", None)
            mine = [one for one in _functions(each) if one.__code__.co_filename == file]
            self._found |= {id(one): one for one in mine}
            if mine and callable(clear):
                self._caches.append(clear)

    def is_up_to_date(self, tree: Sequence[ast.stmt]) -> bool:
        """Return whether the functions are what this says: a file can have been edited since."""
        codes = _codes(tree, self.file)
        mine = [codes.get(_key(each.__code__)) for each in self._found.values()]
        own = [each.__code__ for each in self._found.values()]
        return bool(own) and all(new is not None and _same(new, old) for new, old in zip(mine, own, strict=True))

    @contextmanager
    def changed(self, within: ast.stmt) -> Iterator[None]:
        """Let the functions do what a changed definition says, for as long as the context lasts.

        Raises:
            SyntaxError: If it is no program.
            ValueError: If a function would close over other variables.
        """
        codes, before = _codes([within], self.file), [(each, each.__code__) for each in self._found.values()]
        try:
            for function, old in before:
                new = codes.get(_key(old))
                if new is not None:
                    function.__code__ = new
            self._forget()
            yield
        finally:
            for function, old in before:
                function.__code__ = old
            self._forget()

    def _forget(self) -> None:
        for clear in self._caches:
            clear()


def _key(code: CodeType) -> _Key:
    return code.co_qualname, code.co_firstlineno


def _same(one: CodeType, other: CodeType) -> bool:
    """Return whether two codes do the same, but for functions inside."""

    def parts(code: CodeType) -> tuple[object, ...]:
        plain = [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]
        return code.co_code, code.co_names, code.co_varnames, code.co_freevars, plain

    return parts(one) == parts(other)


def _codes(tree: Sequence[ast.stmt], file: str) -> dict[_Key, CodeType]:
    """Return the code of each function in it."""
    waiting = [compile(ast.Module(list(tree), []), file, "exec", dont_inherit=True)]
    found: dict[_Key, CodeType] = {}
    while waiting:
        code = waiting.pop()
        found.setdefault(_key(code), code)
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found
