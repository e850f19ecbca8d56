"""A lesson that is only opened is not marked as changed, and stays as it was on disk if JupyterLab saves it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest

if TYPE_CHECKING:
    from tests.browser.conftest import Lab

pytestmark = [pytest.mark.browser]

LESSONS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9][0-9]_*.ipynb"))


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
@pytest.mark.long
def test_a_lesson_opened_and_saved_is_the_same_to_the_byte(lab: Lab, path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    lab.open(path.name, notebook)
    assert "jp-mod-dirty" not in lab.page.get_attribute("#jp-main-dock-panel .jp-mod-current", "class")
    assert lab.saved(path.name) == notebook
    until = 0
    while (written := (lab.folder / path.name).read_bytes()) != path.read_bytes() and until < 100:
        lab.page.wait_for_timeout(50)  # half of it is written
        until += 1
    assert written == path.read_bytes()
