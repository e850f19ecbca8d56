"""The record every world yields: spans in columns, metrics, Chrome traces and torch.profiler."""

from labkit.timeline.span import COMMUNICATION, COMPUTE, HOST, REGION, Collective, Lane, Message, Problem, Span
from labkit.timeline.timeline import Timeline

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
]
