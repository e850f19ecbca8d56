"""Learn distributed training by building it.

A notebook needs these names and no others; each is loaded when it is first used, so that ``import labkit``
imports no torch and starts nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.auditing.auditing import audit as audit
    from labkit.board.membership import i_am_done as i_am_done
    from labkit.board.membership import i_need_help as i_need_help
    from labkit.board.membership import join_class as join_class
    from labkit.board.membership import leave_class as leave_class
    from labkit.checks.answering import answer as answer
    from labkit.checks.answering import recorded as recorded
    from labkit.checks.notebook import challenge as challenge
    from labkit.checks.notebook import check as check
    from labkit.checks.predictions import predict as predict
    from labkit.checks.predictions import reveal as reveal
    from labkit.checks.ring_player import ring_player as ring_player
    from labkit.cluster_world import cluster as cluster
    from labkit.crashes.testing import crash_points as crash_points
    from labkit.launch.rank import device as device
    from labkit.launch.rank import span as span
    from labkit.lessons.built import built as built
    from labkit.lessons.earlier_answers import mine as mine
    from labkit.lessons.lending import lend as lend
    from labkit.lessons.named import hint as hint
    from labkit.scripts import script as script
    from labkit.timeline import Timeline as Timeline
    from labkit.virtual_world import virtual as virtual
    from labkit.widgets.bucket_explorer import bucket_explorer as bucket_explorer
    from labkit.widgets.comparison import compare as compare
    from labkit.widgets.compression_explorer import compression_explorer as compression_explorer
    from labkit.widgets.figures import figure as figure
    from labkit.widgets.figures import matrix_cuts as matrix_cuts
    from labkit.widgets.schedule_explorer import schedule_explorer as schedule_explorer
    from labkit.widgets.sharding_player import sharding_player as sharding_player
    from labkit.widgets.staleness_view import staleness_view as staleness_view
    from labkit.worlds import Run as Run
    from labkit.worlds import local as local
    from labkit.worlds import run as run

__version__ = "0.3.0"

_HOME = {
    "Run": "labkit.worlds",
    "Timeline": "labkit.timeline",
    "answer": "labkit.checks.answering",
    "audit": "labkit.auditing.auditing",
    "built": "labkit.lessons.built",
    "bucket_explorer": "labkit.widgets.bucket_explorer",
    "challenge": "labkit.checks.notebook",
    "check": "labkit.checks.notebook",
    "cluster": "labkit.cluster_world",
    "compare": "labkit.widgets.comparison",
    "compression_explorer": "labkit.widgets.compression_explorer",
    "crash_points": "labkit.crashes.testing",
    "device": "labkit.launch.rank",
    "figure": "labkit.widgets.figures",
    "hint": "labkit.lessons.named",
    "i_am_done": "labkit.board.membership",
    "i_need_help": "labkit.board.membership",
    "join_class": "labkit.board.membership",
    "leave_class": "labkit.board.membership",
    "lend": "labkit.lessons.lending",
    "local": "labkit.worlds",
    "matrix_cuts": "labkit.widgets.figures",
    "mine": "labkit.lessons.earlier_answers",
    "predict": "labkit.checks.predictions",
    "recorded": "labkit.checks.answering",
    "reveal": "labkit.checks.predictions",
    "ring_player": "labkit.checks.ring_player",
    "run": "labkit.worlds",
    "schedule_explorer": "labkit.widgets.schedule_explorer",
    "script": "labkit.scripts",
    "sharding_player": "labkit.widgets.sharding_player",
    "span": "labkit.launch.rank",
    "staleness_view": "labkit.widgets.staleness_view",
    "virtual": "labkit.virtual_world",
}

DRAWS = {
    "ask": "labkit.widgets.asking.Asking",
    "bundle": "labkit.widgets.deck_data.bundle",
    "display": "labkit.widgets.display.show_timeline",
    "explore": "labkit.widgets.timeline_view.explored",
    "growing": "labkit.widgets.growing.GrowingTimeline",
    "is_live": "labkit.widgets.live.is_live",
    "page": "labkit.widgets.timeline_page.page",
}
"""Who draws timelines, which stand below all pictures: labkit.timeline.drawing loads it when one is shown."""

__all__ = [
    "Run",
    "Timeline",
    "answer",
    "audit",
    "bucket_explorer",
    "built",
    "challenge",
    "check",
    "cluster",
    "compare",
    "compression_explorer",
    "crash_points",
    "device",
    "figure",
    "hint",
    "i_am_done",
    "i_need_help",
    "join_class",
    "leave_class",
    "lend",
    "local",
    "matrix_cuts",
    "mine",
    "predict",
    "recorded",
    "reveal",
    "ring_player",
    "run",
    "schedule_explorer",
    "script",
    "sharding_player",
    "span",
    "staleness_view",
    "virtual",
]


_ROOMS = ("failures", "hardware")
"""Modules whose names a notebook writes after labkit's own."""


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"labkit.{name}")
    if name not in _HOME:
        raise AttributeError(f"labkit has no {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


if "IPython" in sys.modules:  # in a notebook, cells that need an unsolved exercise say so
    import_module("labkit.lessons.unsolved").install()


def __dir__() -> list[str]:
    return sorted(__all__)
