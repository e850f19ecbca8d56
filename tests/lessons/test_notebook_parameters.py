"""Parameters: declared ones change a run, a misspelt one is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.errors import LessonError
from labkit.lessons.executed import execute, unexecuted
from labkit.lessons.parameters import declared, refuse_undeclared
from labkit.lessons.source import parse

PATH = "solutions/03_mean_over_ranks.py"


def test_the_parameters_cell_says_names_and_values(source_text: str) -> None:
    assert declared(unexecuted(parse(source_text, PATH))) == {"num_values": 4, "shift": 0.5}


def test_a_misspelt_parameter_is_refused_with_the_near_name(source_text: str) -> None:
    notebook = unexecuted(parse(source_text, PATH))
    refuse_undeclared(notebook, {"shift": 2})
    with pytest.raises(
        LessonError, match=r"no parameter 'shfit' \(did you mean 'shift'\?\); it declares num_values, s"
    ):
        refuse_undeclared(notebook, {"shfit": 2})


def test_a_notebook_without_parameters_takes_none(source_text: str) -> None:
    text = source_text.replace('tags=["parameters"]', "")
    with pytest.raises(LessonError, match="it declares none"):
        refuse_undeclared(unexecuted(parse(text, PATH)), {"shift": 2})


@pytest.mark.in_turn
def test_a_declared_parameter_changes_the_run(source_text: str, tmp_path: Path) -> None:
    notebook = execute(parse(source_text, PATH), tmp_path, parameters={"num_values": 2, "shift": 40})
    assert any("40.5" in str(cell.get("outputs")) for cell in notebook["cells"])
