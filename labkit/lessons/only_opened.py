"""What JupyterLab writes into a notebook by opening it stays out of the file: a lesson only opened is as it was."""

from __future__ import annotations

from typing import Any


def without_the_machines_own(model: dict[str, Any], **_: object) -> None:
    """Take out what a kernel says of itself, in the notebook that JupyterLab is about to save (a pre_save_hook).

    JupyterLab writes the kernel's version of Python into a notebook as soon as it is opened, and then saves it.
    """
    content = model.get("content")
    if model.get("type") != "notebook" or not isinstance(content, dict):
        return
    metadata = content.get("metadata", {})
    if "labkit" in metadata and metadata.get("language_info", {}).get("name") == "python":
        metadata["language_info"] = {"name": "python"}
