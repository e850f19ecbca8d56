"""What JupyterLab writes into a notebook by opening it stays out of the file: a lesson only opened is as it was.

As soon as a notebook is opened, JupyterLab sets its ``language_info`` to what the kernel says of itself, the version of
Python too. The file holds none of that: it is put in where a lesson is read, and taken out where it is saved. So
JupyterLab finds nothing to set, and does not mark the lesson as changed.
"""

from __future__ import annotations

from typing import Any

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

IN_THE_FILE = {"name": "python"}


class LessonsManager(AsyncLargeFileManager):
    """JupyterLab's files, with the kernel's words in a lesson that is opened (a contents_manager_class)."""

    async def get(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Return a file or folder as JupyterLab's own manager does."""
        model: dict[str, Any] = await super().get(*arguments, **options)  # type: ignore[no-untyped-call]
        metadata = _metadata_of_lesson(model)
        if metadata.get("language_info") == IN_THE_FILE:
            metadata["language_info"] = dict(IPythonKernel.language_info)
        return model


def without_the_machines_own(model: dict[str, Any], **_: object) -> None:
    """Take out what a kernel says of itself, in the notebook that JupyterLab is about to save (a pre_save_hook)."""
    metadata = _metadata_of_lesson(model)
    if metadata.get("language_info", {}).get("name") == "python":
        metadata["language_info"] = dict(IN_THE_FILE)


def _metadata_of_lesson(model: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook's metadata; nothing where it is no lesson, or comes without its content."""
    content = model.get("content")
    if model.get("type") != "notebook" or not isinstance(content, dict):
        return {}
    metadata: dict[str, Any] = content.get("metadata", {})
    return metadata if "labkit" in metadata else {}
