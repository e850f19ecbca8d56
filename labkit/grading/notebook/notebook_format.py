"""nbformat, loaded without the grammar of international web addresses that jsonschema builds on the way.

Building it takes 1.3 s, five times as long as everything else that reads a notebook; no schema of a notebook asks for
it. jsonschema does without where the package is not installed, and that is what it is told here.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType

_GRAMMAR = "rfc3987_syntax"


@cache
def load_nbformat() -> ModuleType:
    """Return the module nbformat; what is loaded after it (nbclient, papermill) finds jsonschema loaded, too."""
    needless = _GRAMMAR not in sys.modules
    if needless:
        sys.modules[_GRAMMAR] = None  # type: ignore[assignment]  # what Python has for "not there"
    try:
        import nbformat
    finally:
        if needless:
            del sys.modules[_GRAMMAR]
    return nbformat
