"""A copy of every module that is not installed for each rank, as each process imports its own.

Python keeps modules in ``sys.modules``. Exactly one rank runs at a time, so what stands there is changed with the rank:
``import`` in all its forms, ``importlib``, pickles that name a module and ``__main__`` find the rank's own. Modules of
the standard library, of installed packages, of torch and of labkit stay one for all ranks; a rank that is the first to
import one does so as if it were no rank, for the module outlives the run. Installed is what lies in Python's own
folders for packages, and what an installer wrote down where it lies: ``pip install --target`` leaves a record beside
the package. A folder of sources on ``PYTHONPATH`` has none, and is the learner's.

Ranks share the compiled code of a module. What each has of its own is what executing it makes.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import _bootstrap
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from labkit.simulator.garbage import swept
from labkit.simulator.library_locks import share_locks
from labkit.simulator.state import current_rank, outside
from labkit.torch_port.operators import uncounted

_SHARED = frozenset({"labkit", "torch", "torchgen", "functorch", "numpy"})
_NO_LIBRARIES = _SHARED | sys.stdlib_module_names | {"__main__"}
_OF_MANY = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_MAIN = "__main__"
_imports: Any = _bootstrap
_others: dict[str, ModuleType] = {}
"""Modules that were found not to be own, by their place in sys.modules: each run asks of thousands."""


def _installed_folders() -> tuple[str, ...]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    folders |= {os.path.realpath(folder) for folder in folders}  # compared as text, thousands of times
    return tuple(folder.rstrip(os.sep) + os.sep for folder in folders)


_INSTALLED = _installed_folders()


def is_own(module: ModuleType) -> bool:
    """Return whether a module is the learner's: neither built in nor installed, nor of torch or labkit."""
    name = str(vars(module).get("__name__"))
    spec = vars(module).get("__spec__")
    if spec is None:
        file = vars(module).get("__file__")
        made_by_hand = not file and name in sys.modules and "." not in name and type(module) is ModuleType
        return name.partition(".")[0] not in _SHARED and (made_by_hand if not file else _is_ours(name, [file]))
    return is_own_spec(spec)


def is_programs(name: str) -> bool:
    """Return whether code that says it is of the module of this name is a program's own."""
    module = sys.modules.get(name)
    return name == "__main__" or module is None or is_own(module)


def is_own_spec(spec: ModuleSpec) -> bool:
    """Return whether what a specification describes is the learner's."""
    if spec.name.partition(".")[0] in _SHARED:
        return False
    if spec.has_location and spec.origin is not None:
        return spec.origin.endswith((".py", ".pyc")) and _is_ours(spec.name, [spec.origin])
    return _is_ours(spec.name, list(spec.submodule_search_locations or ()))


def _is_ours(name: str, paths: Sequence[str]) -> bool:
    return bool(paths) and not any(
        path.startswith(_INSTALLED) or any(m in path for m in _OF_MANY) or _has_record(name, path) for path in paths
    )


def _has_record(name: str, path: str) -> bool:
    """Return whether an installer wrote down, beside the package that a module of this name is in, that it is there."""
    parents, depth = Path(path).parents, name.count(".") + (Path(path).stem == "__init__")
    # Not as a rank, which may give its turn away where it looks at a disk: here it holds Python's lock of an import.
    with outside(), suppress(OSError, IndexError):  # it is in an archive, or is called otherwise than its file
        return name.partition(".")[0] in _recorded(str(parents[depth]), parents[depth].stat().st_mtime_ns)
    return False


@cache
def _recorded(folder: str, changed_ns: int) -> frozenset[str]:
    """Return the packages and modules that installers' records in this folder name, as it was when it last changed."""
    names = set()
    for record in Path(folder).glob("*.dist-info/RECORD"):
        with record.open(encoding="utf-8", errors="replace") as lines:
            names |= {line.split(",", 1)[0].split("/", 1)[0].removesuffix(".py") for line in lines}
    return frozenset(names)


class OwnModules(MetaPathFinder):
    """Finds modules for ranks, and puts each rank's own in place."""

    def __init__(self, num_ranks: int, loaded: Callable[[], None]) -> None:
        """Begin with nothing imported.

        Args:
            num_ranks: Ranks of the run.
            loaded: Called when an installed module has been imported in a rank, and what it needs.
        """
        self._loaded = loaded
        # The last of each is what other threads had before.
        self._names: list[set[str]] = [set() for _ in range(num_ranks + 1)]
        self._kept: list[dict[str, ModuleType]] = [{} for _ in range(num_ranks + 1)]
        self._importing = [0] * (num_ranks + 1)
        self._codes: dict[tuple[str, float], CodeType] = {}
        self._count = 0
        self._seen: set[str] = set()
        self.before: dict[str, ModuleType] = {}

    def add_main(self, rank: int) -> ModuleType:
        """Return a new ``__main__`` for a rank that does not run yet."""
        main = ModuleType(_MAIN)
        vars(main)["__builtins__"] = builtins
        self._names[rank].add(_MAIN)
        self._kept[rank][_MAIN] = main
        return main

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let ranks import modules of their own."""
        self._names[-1] = {name for name, module in list(sys.modules.items()) if _counts(name, module)}
        self.before = {name: sys.modules[name] for name in self._names[-1]}
        self._note()
        for name in filter(_is_librarys, self._seen):
            if isinstance(module := sys.modules.get(name), ModuleType):
                share_locks(name, module)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)

    @property
    def shared(self) -> list[str]:
        """Return the names of modules that all ranks share and no rank was the first to import."""
        return sorted(self._seen)

    def switch(self, before: int, rank: int) -> None:
        """Put away the modules of who ran before and bring those of who runs now; -1 is no rank."""
        modules, names, kept, mine = sys.modules, self._names[before], self._kept[before], self._kept[rank]
        if (
            len(modules) == self._count and len(kept) == len(names) and not self._importing[before]
            and kept.items() <= modules.items() and kept.keys() == mine.keys()
        ):  # fmt: skip
            modules.update(mine)  # as nearly always: nothing has changed, and both have modules of the same names
            return
        if len(modules) != self._count:
            self._find_new(names)
        self._kept[before] = {name: modules.pop(name) for name in names if name in modules}
        if self._importing[before]:  # it stands in an import of its own, which is no other rank's
            for name in list(_imports._module_locks):
                if name in names or name.partition(".")[0] in names:  # a package's module is found once that is there
                    _imports._module_locks.pop(name, None)
        modules.update(mine)
        self._count = len(modules)

    def _find_new(self, names: set[str]) -> None:
        """Note modules that came into sys.modules past :meth:`find_spec`."""
        for name in sys.modules.keys() - self._seen - names:
            if _counts(name, sys.modules[name]):
                names.add(name)
            else:
                self._seen.add(name)

    def _note(self) -> None:
        self._seen = set(sys.modules) - self._names[-1]
        self._count = len(sys.modules)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return how a rank imports a module; None for other threads, which are served as ever."""
        rank = current_rank()
        if rank is None:
            return None
        spec = self._found(fullname, path, target)
        if spec is None:
            return None
        if not is_own_spec(spec):
            if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                spec.loader = _Outside(spec.loader, self._loaded)
            return spec
        self._names[rank.rank].add(fullname)
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _SharedCode(spec.loader.name, spec.loader.path, self._codes)
        if spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Counted(spec.loader, self._importing, rank.rank)
        return spec

    def _found(self, fullname: str, path: Any, target: Any) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        known = self.before.get(fullname)  # imported by other means before the run
        file = getattr(known, "__file__", None)
        if file is None:
            return None
        places = getattr(known, "__path__", None)
        return importlib.util.spec_from_file_location(
            fullname, file, submodule_search_locations=None if places is None else list(places)
        )


def _counts(name: str, module: Any) -> bool:
    if _others.get(name) is module and name != _MAIN:
        return False
    counts = name == _MAIN or (isinstance(module, ModuleType) and is_own(module))
    if not counts and isinstance(module, ModuleType) and vars(module).get("__spec__") is not None:
        _others[name] = module
    return counts


def _is_librarys(name: str) -> bool:
    """Return whether a shared module of this name comes with neither Python, nor torch, numpy or labkit."""
    return name.partition(".")[0] not in _NO_LIBRARIES


class _Passing(Loader):
    """Loads as another loader does, which is the module's own afterwards."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        spec.loader = self._real
        try:
            made: ModuleType | None = self._real.create_module(spec) if hasattr(self._real, "create_module") else None
        finally:
            spec.loader = self
        return made

    def _exec(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        module.__loader__ = self._real
        self._real.exec_module(module)


class _Outside(_Passing):
    """Loads a module that all ranks and the caller share."""

    def __init__(self, real: Any, loaded: Callable[[], None]) -> None:
        super().__init__(real)
        self._loaded = loaded

    def exec_module(self, module: ModuleType) -> None:
        before = set(sys.modules)
        with outside(), uncounted(), swept():
            self._exec(module)
        for name in sys.modules.keys() - before | {module.__name__}:
            came = sys.modules.get(name, module)
            if isinstance(came, ModuleType) and _is_librarys(name):
                share_locks(name, came)
        self._loaded()


class _Counted(_Passing):
    """Loads a module of a rank's own."""

    def __init__(self, real: Any, importing: list[int], rank: int) -> None:
        super().__init__(real)
        self._importing, self._rank = importing, rank

    def exec_module(self, module: ModuleType) -> None:
        self._importing[self._rank] += 1
        try:
            self._exec(module)
        finally:
            self._importing[self._rank] -= 1


class _SharedCode(SourceFileLoader):
    """Compiles a file, or reads what was compiled, once for all ranks."""

    def __init__(self, name: str, path: str, codes: dict[tuple[str, float], CodeType]) -> None:
        super().__init__(name, path)
        self._codes = codes

    def get_code(self, fullname: str) -> CodeType | None:
        key = (self.path, self.path_stats(self.path)["mtime"])
        code = self._codes.get(key)
        if code is None:
            code = super().get_code(fullname)
            if code is not None:
                self._codes[key] = code
        return code
