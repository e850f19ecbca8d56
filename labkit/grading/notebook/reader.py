"""The process that runs papermill and reads what kernels send; `execute` talks to it.

Run as ``python -m labkit.grading.notebook.reader FD BYTES``: FD is a socket to the grading process, BYTES the most
memory of its own; 0 says that notebooks run without a sandbox, and it with as much as there is.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.grading.frames import read_frame, write_frame
from labkit.grading.limits import Limits
from labkit.grading.notebook.notebook_format import load_nbformat


def main() -> None:
    """Run notebooks until the grading process closes the socket."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    most_bytes = int(sys.argv[2])
    logging.getLogger("papermill").setLevel(logging.ERROR)
    logging.getLogger("traitlets").setLevel(logging.CRITICAL)
    load_nbformat()
    from labkit.grading.notebook.kernel_provisioner import Started
    from labkit.grading.notebook.papermill_client import run_notebook

    if most_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))

    def ask(connection: Mapping[str, Any]) -> Started:
        write_frame(sock, {"connection": dict(connection)})
        answer = read_frame(sock)
        if answer is None:
            raise SystemExit
        return Started(**answer.header)

    while (frame := read_frame(sock)) is not None:
        told = frame.header
        limits, notebook = Limits(**told["limits"]), load_nbformat().from_dict(told["notebook"])
        write_frame(sock, run_notebook(notebook, Path(told["work"]), limits, ask if most_bytes else None))


if __name__ == "__main__":
    main()
    os._exit(0)
