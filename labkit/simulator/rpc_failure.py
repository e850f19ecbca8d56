"""An error that crosses from callee to caller, told as torch tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit.simulator.tracebacks import describe


@dataclass(frozen=True)
class Failure:
    """What a remote call ended with.

    Attributes:
        text: Where, what, and the traceback there.
        kind: The type of the error.
        plain: Whether the caller raises just that, as torch does for what it finds before or after the call itself.
    """

    text: str
    kind: type[Exception]
    plain: bool = False

    @classmethod
    def of(cls, error: Exception, where: Any) -> Failure:
        """Return the failure that an error at this worker is."""
        return cls(f"On {where}:\n{error!r}\n{describe(error)[1]}\n", type(error))

    def error(self, *, exact: bool) -> Exception:
        """Return what the caller raises.

        Args:
            exact: Whether the type is kept whatever it is, as RRef.to_here does; rpc_sync and rpc_async keep ValueError
                and TypeError alone, and raise RuntimeError for all others.
        """
        if self.plain:
            return self.kind(self.text)
        try:
            error: Exception = self.kind(self.text)
        except Exception as problem:
            error = RuntimeError(
                f"Failed to create original exception type. Error msg was {problem} Original exception on remote side "
                f"was {self.text}"
            )
        if exact:
            return error
        text = f"{type(error).__name__}: {self.text if type(error) is self.kind else error}"
        for kept in (ValueError, TypeError):
            if isinstance(error, kept):
                return kept(text)
        return RuntimeError(text)
