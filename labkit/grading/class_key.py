"""The class key: what hidden cases are drawn from. It lies beside the gradebook, and no sandbox ever sees it.

Same submission, same key: the same cases and the same score. Whoever has the key can work out every hidden case.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from labkit.errors import ConfigError, EnvironmentProblem

_NAME = "gradebook.key"
_SQLITE = "sqlite:///"
_NUM_BYTES = 32


def key_file(environ: Mapping[str, str]) -> Path:
    """Return where the key lies: LABKIT_CLASS_KEY, else beside the gradebook, whether or not there is one yet."""
    named, book = environ.get("LABKIT_CLASS_KEY"), environ.get("LABKIT_GRADEBOOK", "")
    if named:
        return Path(named)
    if book.startswith(_SQLITE):
        return Path(book.removeprefix(_SQLITE)).with_suffix(".key")
    return Path(_NAME)


def class_key(path: Path) -> bytes:
    """Return the key in a file, which is made, for its owner alone to read, where there is none.

    Raises:
        ConfigError: If others can read it, or it holds no key.
        EnvironmentProblem: If it can be neither read nor made.
    """
    try:
        if not path.exists():
            _make(path)
        with open(path, encoding="ascii") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(1000).strip()
    except OSError as error:
        raise EnvironmentProblem(
            f"the class key {path} cannot be read or written ({error.strerror}); name another file with --key"
        ) from None
    except UnicodeDecodeError:
        text = ""
    if not _is_key(text):
        raise ConfigError(
            f"{path} is not a class key ({2 * _NUM_BYTES} hexadecimal digits); name another file with --key"
        )
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"others can read the class key {path} (mode {stat.S_IMODE(mode):o}); run: chmod 600 {path}")
    return bytes.fromhex(text)


def write_for_owner(path: Path, text: str) -> None:
    """Write a file anew, for its owner alone to read from its first byte on; a link there is replaced."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def new_key() -> str:
    """Return a random key as a file holds it."""
    return secrets.token_hex(_NUM_BYTES) + "\n"


def _is_key(text: str) -> bool:
    return len(text) == 2 * _NUM_BYTES and not set(text) - set("0123456789abcdef")


def _make(path: Path) -> None:
    """Make a key at once and whole: of two who begin together, both use the first one's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, made = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # its mode is 0600
    try:
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(new_key())
        with suppress(FileExistsError):
            os.link(made, path)
    finally:
        Path(made).unlink()
