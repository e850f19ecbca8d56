"""The explorers' programs: pure functions under node, and how much of them there is."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from labkit.lessons.executed import _UNSTEADY
from labkit.widgets import bucket_explorer, bucket_still, compression_explorer, schedule_explorer, staleness_view
from labkit.widgets.ring_player import player_of_plans
from labkit.widgets.scripts import javascript, packed
from labkit.widgets.timeline_view import SCRIPTS, program
from tests.widgets.colour_vision import contrast, least_distance
from tests.widgets.in_node import STATIC, evaluate

VIEWS = sorted(path.name for path in STATIC.glob("*.js") if 'from "./figure.js"' in path.read_text())
FIGURE = packed((VIEWS[0],), ("figure.js",))[0]
LIMIT_BYTES = 60_000


def test_pure_functions_under_node() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    tests = Path(__file__).with_name("explorers.test.mjs")
    done = subprocess.run([node, "--test", str(tests)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_notebook_with_every_view_sends_is_at_most_60_kilobytes() -> None:
    assert len(program()) + len(FIGURE) + sum(len(packed((name,), ("figure.js",))[1]) for name in VIEWS) <= LIMIT_BYTES


def test_what_all_figures_begin_with_is_the_same_text_in_all() -> None:
    assert {packed((name,), ("figure.js",))[0] for name in VIEWS} == {FIGURE}


def test_the_page_unpacks_what_python_packed() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    programs = [((name,), ("figure.js",)) for name in VIEWS] + [(SCRIPTS, ())]
    texts = [packed(*each) for each in programs]
    assert not {*"".join(itertools.chain(*texts))} & set('<"\\')  # nothing that ends a script or a string
    unpacker = program().partition("const load")[0]
    found = f"await Promise.all({json.dumps(texts)}.map((parts) => unpack(...parts)))"
    script = f"{unpacker}process.stdout.write(JSON.stringify({found}));"
    command = [node, "--input-type=module"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["".join(f"{javascript(name)}\n" for name in [*a, *b]) for b, a in programs]


def test_every_file_is_sent_by_some_view() -> None:
    assert sorted(path.name for path in STATIC.glob("*.js")) == sorted(["figure.js", *VIEWS, *SCRIPTS])


@pytest.mark.parametrize("name", ["figure.js", *VIEWS])
def test_a_program_asks_no_address_and_needs_no_other_file(name: str) -> None:
    program = javascript(name)
    assert not re.search(r"https?:|\bfetch\(|XMLHttpRequest|WebSocket|^\s*(import|export)\b", program, re.MULTILINE)
    assert not [what for what, pattern in _UNSTEADY.items() if pattern.search(program)]  # as a lesson's output


FIGURES = {
    "bucketExplorer": bucket_explorer.bucket_explorer,
    "compressionExplorer": compression_explorer.compression_explorer,
    "ringPlayer": lambda: player_of_plans(None, 4, 16e6, 5e-6, 450e9),
    "scheduleExplorer": schedule_explorer.schedule_explorer,
    "stalenessView": staleness_view.staleness_view,
}
DRAWN = "(view => view.draw(Object.fromEntries(view.sliders.map(s => [s.key, s.value])), 2, 700))(%s(data))"


@pytest.mark.parametrize("view", FIGURES)
def test_what_is_sent_draws_and_says_what_the_source_does(view: str) -> None:
    figure = FIGURES[view]()
    drawn = evaluate(figure.script, DRAWN % view, data=figure.data)
    assert drawn["say"] and drawn["numbers"]
    program = f"{javascript('figure.js')}\n{javascript(figure.script)}\nconst data = {json.dumps(figure.data)};"
    command = [str(shutil.which("node")), "--input-type=module"]
    script = f"{program}\nprocess.stdout.write(JSON.stringify({DRAWN % view}));"
    done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == drawn


def test_the_pieces_of_a_figure_do_not_share_a_name() -> None:
    for view in VIEWS:
        program = javascript("figure.js") + "\n" + javascript(view)
        node = shutil.which("node")
        if node is None:
            pytest.skip("no node on this machine")
        command = [node, "--input-type=module", "--check"]
        done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr


PALETTES = {
    "bucket_explorer.js": list(bucket_still.COLOURS),
    "compression_explorer.js": list(compression_explorer.COLOURS)[1:],
    "schedule_explorer.js": list(dict.fromkeys(schedule_explorer.FILL.values())),
}


@pytest.mark.parametrize("name", PALETTES)
def test_colours_are_apart_for_every_colour_vision_and_the_same_in_picture_and_program(name: str) -> None:
    assert least_distance(PALETTES[name]) >= 16
    program = javascript("figure.js") + javascript(name)
    assert [colour for colour in PALETTES[name] if colour not in program] == []


@pytest.mark.parametrize(("ground", "ink"), [("#ffffff", "#1a1a1a"), ("#111111", "#e8e8e8")])
def test_lines_stand_out_on_light_and_dark_ground(ground: str, ink: str) -> None:
    def mixed(colour: str) -> str:
        """Return color-mix(in srgb, colour 72%, currentColor)."""
        parts = ([int(each[at : at + 2], 16) for at in (1, 3, 5)] for each in (colour, ink))
        return "#" + "".join(f"{round(0.72 * one + 0.28 * other):02x}" for one, other in zip(*parts, strict=True))

    assert min(contrast(mixed(colour), ground) for colour in PALETTES["compression_explorer.js"]) >= 2
