"""torch's private names stand in labkit/torch_port and nowhere else in labkit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "labkit"
PORT = PACKAGE / "torch_port"

# Modules of torch that are not private by name, and that its documentation does not describe.
INSIDE = (
    "torch.distributed.distributed_c10d",
    "torch.distributed.c10d_logger",
    "torch.distributed.rpc.api",
    "torch.distributed.rpc.internal",
    "torch.distributed.rpc.rref_proxy",
)

# Private attributes of torch's public objects, beside those that the port itself names.
ATTRIBUTES = frozenset(
    {
        "_version", "_base", "_grad", "_cdata", "_typed_storage", "_backward_hooks", "_is_view",
        "_modules", "_forward_hooks", "_forward_pre_hooks", "_saved_tensors", "_next_functions", "_schema_arguments",
        "_overloadname", "_overloads", "_get_default_group", "_get_process_group_name", "_rank_not_in_group",
        "_coalescing_manager", "_all_gather_base", "_canonicalize_group_rank", "_group_or_default_group",
        "_get_default_store", "_dynamo", "_inductor", "_functorch", "_subclasses", "_refs", "_prims", "_foreach_add_",
    }
)  # fmt: skip


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@cache
def known_attributes() -> frozenset[str]:
    """Return the private names that the port reads from torch's objects, or overrides in torch's classes."""
    found, own = set(ATTRIBUTES), set()
    for path in PORT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                (own if _is_own(node.value) else found).add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found.add(node.value)
    return frozenset(filter(is_private, found - own))


PRIVATE = re.compile(r"\._(?<!\bself\._)(?<!\bcls\._)[a-zA-Z]|import _")


def is_suspect(source: str) -> bool:
    """Return whether a module may name something private of torch: the trees of all others take seconds."""
    words = set(re.findall(r"\w+", source))
    inside = {name.rpartition(".")[2] for name in INSIDE}
    return bool(words & (known_attributes() | inside)) or PRIVATE.search(source) is not None


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls", "PortGroup")


def private_names(source: str, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield line and text of each private name of torch in a module's source."""
    tree = ast.parse(source)
    torchs = {name for name, module in _imported(tree) if module.split(".")[0] == "torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_inside(alias.name):
                    yield node.lineno, f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if _is_inside(f"{node.module}.{alias.name}"):
                    yield node.lineno, f"from {node.module} import {alias.name}"
        elif isinstance(node, ast.Attribute):
            of_torch = _root(node) in torchs and (is_private(node.attr) or _is_inside(ast.unparse(node)))
            if of_torch or (node.attr in known and not _is_own(node.value)):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ClassDef) and node.bases:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name in known:
                    yield method.lineno, f"def {method.name}"
        elif isinstance(node, ast.Constant) and (node.value in known or _is_inside(str(node.value))):
            yield node.lineno, repr(node.value)


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, and the module it comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.split(".")[0], alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, node.module or "") for alias in node.names)


def _is_inside(dotted: str) -> bool:
    parts = dotted.split(".") if " " not in dotted else [""]
    return parts[0] == "torch" and (any(map(is_private, parts)) or dotted.startswith(INSIDE))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if PORT not in path.parents)


def test_no_private_name_of_torch_stands_outside_the_port() -> None:
    known = known_attributes()
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {name}"
        for path in MODULES
        if is_suspect(text := path.read_text())
        for line, name in private_names(text, known)
    ]
    assert not found, "\n".join(["These belong into labkit/torch_port:", *found])


@pytest.mark.parametrize(
    "planted",
    [
        "import torch._dynamo",
        "from torch._C import Future",
        "from torch._C._distributed_c10d import TCPStore",
        "from torch.distributed import distributed_c10d",
        "from torch.distributed.rpc.api import rpc_sync",
        "import torch\nkind = torch._C.Future",
        "import torch\ntorch.autograd.Variable._execution_engine.queue_callback(print)",
        "import torch.distributed as dist\ndist.distributed_c10d._world.pg_map",
        "import torch.distributed as dist\ndist.group.WORLD._get_backend",
        "def changed(tensor):\n    return tensor._version",
        "def parts(func):\n    return func._overloadpacket, func._schema",
        "def own(module):\n    return module._parameters",
        "class Work(dist.Work):\n    def _source_rank(self):\n        return 0",
        "def mark(function):\n    return hasattr(function, '_wrapped_async_rpc_function')",
        "PRELOADED = ('torch._dynamo',)",
        "def lookup(work):\n    return getattr(work, '_source_rank')()",
    ],
)
def test_a_planted_private_name_is_found(planted: str) -> None:
    assert is_suspect(planted) and list(private_names(planted, known_attributes())), planted


@pytest.mark.parametrize(
    "innocent",
    [
        "import torch\nfrom torch.futures import Future\ntorch.distributed.rpc.rpc_sync",
        "class Box:\n    def __init__(self):\n        self._parameters = 1",
        "class Box:\n    def _key(self):\n        return other._key",
        "'torch._C.Future is what both are'",
        "import os, sys\nos._exit(sys._getframe(1).f_lineno)",
        "from labkit.torch_port.tensors import version_of",
    ],
)
def test_what_is_public_or_our_own_is_let_be(innocent: str) -> None:
    assert not list(private_names(innocent, known_attributes())), innocent
