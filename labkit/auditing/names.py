"""What parameters and buffers are called: by the modules of one rank, as they are when somebody asks."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch

_WRAPPING = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


class Names:
    """The modules that a rank made and still has.

    Attributes:
        made: Id of a parameter -> the line that gave it to a module.
        changes: How often a module was added.
    """

    def __init__(self) -> None:
        self._modules: dict[int, weakref.ref[torch.nn.Module]] = {}
        self.made: dict[int, str] = {}
        self.changes = 0
        self._called: tuple[int, dict[int, str]] = (-1, {})

    def add(self, module: torch.nn.Module) -> None:
        """Take note of a module."""
        self._modules[id(module)] = weakref.ref(module)
        self.changes += 1

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """Return every parameter of the rank's models by its name, in the models' order."""
        found: dict[str, torch.nn.Parameter] = {}
        seen: set[int] = set()
        for root in self._roots():
            for name, one in root.named_parameters():
                if id(one) not in seen:
                    seen.add(id(one))
                    found[_free(_plain(name), root, found)] = one
        return found

    def of_module(self, module: torch.nn.Module) -> str:
        """Return what a module is called: by its place in the model, else by its class."""
        if self._called[0] != self.changes:
            found: dict[int, str] = {}
            for root in self._roots():
                for name, one in root.named_modules():
                    plain = _plain(f"{name}.").rstrip(".")
                    found.setdefault(id(one), plain or _numbered(type(one).__name__, found))
            self._called = (self.changes, found)
        return self._called[1].get(id(module), type(module).__name__)

    def is_wrapped(self, module: torch.nn.Module) -> bool:
        """Return whether a module is what DistributedDataParallel wraps."""
        return any(
            isinstance(one, torch.nn.parallel.DistributedDataParallel) and one.module is module
            for reference in self._modules.values()
            if (one := reference()) is not None
        )

    def of_norms(self) -> set[str]:
        """Return the names of the parameters that normalisations hold."""
        return self.parameters_of({key for key, one in self._modules.items() if "Norm" in type(one()).__name__})

    def parameters_of(self, modules: set[int]) -> set[str]:
        """Return the names of the parameters that modules of these ids hold themselves."""
        own = {
            id(one)
            for key in modules
            if (reference := self._modules.get(key)) is not None and (module := reference()) is not None
            for one in module.parameters(recurse=False)
        }
        return {name for name, one in self.parameters().items() if id(one) in own}

    def buffers(self) -> dict[str, torch.Tensor]:
        """Return every buffer of the rank's models by its name."""
        found: dict[str, torch.Tensor] = {}
        for root in self._roots():
            for name, one in root.named_buffers():
                found[_free(_plain(name), root, found)] = one
        return found

    def _roots(self) -> Iterator[torch.nn.Module]:
        """Yield the modules that are part of no other."""
        live: list[torch.nn.Module] = []
        for key, reference in list(self._modules.items()):
            module = reference()
            if module is None:
                del self._modules[key]
            else:
                live.append(module)
        inside = {id(child) for module in live for child in module.children()}
        for module in live:
            if id(module) not in inside:
                yield module


def _numbered(name: str, taken: dict[int, str]) -> str:
    same = sum(one == name or one.startswith(f"{name} ") for one in taken.values())
    return f"{name} {same + 1}" if same else name


def _plain(name: str) -> str:
    for part in _WRAPPING:
        name = name.replace(part, "") if name.startswith(part) or f".{part}" in name else name
    return name


def _free(name: str, root: torch.nn.Module, taken: dict[str, torch.nn.Parameter] | dict[str, torch.Tensor]) -> str:
    if name not in taken:
        return name
    named, number = f"{type(root).__name__}.{name}", 2
    while named in taken:
        named, number = f"{type(root).__name__} {number}.{name}", number + 1
    return named
