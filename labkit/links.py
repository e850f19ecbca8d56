"""Links on the way to what a command reads or writes: not followed where a student could have made them.

A link in place of a notebook has the instructor's solution graded; one in place of the folder for reports has them
written over other files.
"""

from __future__ import annotations

from pathlib import Path

from labkit.errors import ConfigError


def refuse_links(path: Path, asked: str) -> None:
    """Raise if a link stands anywhere on the way to `path`, or in its place.

    Links of the machine itself are followed: those straight below the root, such as macOS's ``/tmp``, and those on the
    way to the home folder.

    Args:
        path: As somebody named it.
        asked: What it was named for, such as "the submission".

    Raises:
        ConfigError: If there is one; the message says where it leads and what to name instead.
    """
    for step in (path, *path.parents):
        if step.is_symlink() and not _of_the_machine(Path.cwd() / step):
            place = f"{asked} {path}" if step == path else f"{asked} {path}: {step}"
            raise ConfigError(
                f"{place} is a link to {step.readlink()}, and links are not followed here, because a student could "
                f"have made them; put a plain {'folder' if step.is_dir() else 'file'} in its place, or name what it "
                "leads to"
            )


def _of_the_machine(link: Path) -> bool:
    return link.parent == Path(link.anchor) or Path("~").expanduser().is_relative_to(link)
