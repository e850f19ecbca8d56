"""What a rank is told of an exercise: how to call it, never what is right; made by the oracle process as bytes.

A driver travels by value: its source, and that of the lesson's own modules it imports, so that nothing of them need be
seen where a submission runs. What it imports besides must be what every rank has:
`labkit.grading.sandbox.view.runtime`, and of labkit.checks what starts ranks.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType

from labkit.checks.exercise import Driver, Exercise
from labkit.checks.rooms import COURSE, LABKIT, driver_module

_SENT = (f"{LABKIT}.", f"{COURSE}.", "labkit.checks.on_ranks.", "labkit.checks.values")
"""How the names of modules begin that travel."""


@dataclass(frozen=True)
class RankExercise:
    """An exercise without its oracle, findings, cases and hints.

    Attributes:
        id: Its slug.
        functions: What the learner's cells must define.
        given: What the lesson defines for them.
        distributed: Whether the driver needs a process group.
        torchs_own: Whether the driver trains with torch's own DistributedDataParallel.
        module: Name of the driver's module.
        sources: Name of a module that travels -> its source.
    """

    id: str
    functions: tuple[str, ...]
    given: tuple[str, ...]
    distributed: bool
    torchs_own: bool
    module: str
    sources: Mapping[str, str]

    @cached_property
    def driver(self) -> Driver:
        """What is called with functions and inputs; the first use imports it, out of `sources`."""
        finder = _Sources(self.sources)
        sys.meta_path.insert(0, finder)
        found: Driver = import_module(self.module).drive
        return found


def pack(exercises: Mapping[str, Exercise], package: str, lesson: str) -> bytes:
    """Return the rank's side of these exercises; for the trusted side, which reads no such bytes.

    Args:
        exercises: By slug.
        package: The package that they lie in.
        lesson: The lesson's slug.
    """
    told = []
    for each in exercises.values():
        module = driver_module(package, lesson, each.id)
        told.append(
            RankExercise(
                each.id, each.functions, each.given, each.distributed, each.torchs_own, module, sources_of(module)
            )
        )
    return json.dumps([asdict(each) for each in told]).encode()


def unpack(data: bytes) -> Mapping[str, RankExercise]:
    """Return what `pack` was given, by slug."""
    told = json.loads(data)
    return {
        each["id"]: RankExercise(**each | {name: tuple(each[name]) for name in ("functions", "given")}) for each in told
    }


def sources_of(module: str) -> dict[str, str]:
    """Return the source of a driver's module and of those that travel with it, by name."""
    sources: dict[str, str] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in sources:
            spec = find_spec(name)
            assert spec is not None and spec.origin is not None, name
            sources[name] = Path(spec.origin).read_text(encoding="utf-8")
            todo += [each for each in imports_of(sources[name]) if each.startswith(_SENT) and _is_file(each)]
    return sources


def imports_of(source: str) -> Iterator[str]:
    """Yield the dotted names that a source imports, wherever in it: a module's, and what may be one in a package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_file(name: str) -> bool:
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # a name in a module, which is no package
        return False
    return spec is not None and spec.origin is not None


class _Sources(MetaPathFinder, InspectLoader):
    """Imports modules out of their sources; the packages above them hold nothing else."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._packages = {name.rsplit(".", count)[0] for name in sources for count in range(1, name.count(".") + 1)}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._sources:
            return spec_from_loader(fullname, self, origin=f"<{fullname}>")
        if fullname in self._packages and fullname not in sys.modules:
            return ModuleSpec(fullname, None, is_package=True)
        return None

    def get_source(self, fullname: str) -> str:
        return self._sources[fullname]

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._sources[fullname], f"{fullname.replace('.', '/')}.py", "exec", dont_inherit=True)

    def is_package(self, fullname: str) -> bool:
        return False
