"""The record every world yields: spans in columns, metrics, Chrome traces and torch.profiler."""

from labkit.timeline.span import COMMUNICATION, COMPUTE, HOST, REGION, Collective, Lane, Message, Problem, Span
from labkit.timeline.timeline import Timeline

load = Timeline.load
"""Return the timeline in a file: one that a timeline's save() wrote, or a program started with LABKIT_RECORD."""

__all__ = [
    "COMMUNICATION",
    "COMPUTE",
    "HOST",
    "REGION",
    "Collective",
    "Lane",
    "Message",
    "Problem",
    "Span",
    "Timeline",
    "load",
]
