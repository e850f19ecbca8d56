"""Methods of objects that live at their owner, as calls name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Method:
    """The method of an object that lives at its owner, as what a call names."""

    of: Any
    name: str

    def found(self) -> Any:
        """Return the method itself, at the owner."""
        value = self.of.local_value()
        try:
            getattr(type(value), self.name)
        except AttributeError as error:
            raise NoMethodError(*error.args) from None
        return getattr(value, self.name)


class NoMethodError(AttributeError):
    """The object behind an RRef has no such method."""
