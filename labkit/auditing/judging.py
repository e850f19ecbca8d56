"""All rules, put to what was seen."""

from __future__ import annotations

from labkit.auditing.catalogue import Look
from labkit.auditing.finding import SEVERITIES, Finding
from labkit.auditing.rules import (
    buffers,
    checkpoints,
    clipping,
    gradients,
    losses,
    parameters,
    random_state,
    replicas,
    samples,
    shards,
    waits,
)
from labkit.auditing.seen import Seen

LOOKS: tuple[Look, ...] = tuple(
    module.look
    for module in (
        gradients,
        replicas,
        shards,
        parameters,
        losses,
        samples,
        random_state,
        clipping,
        buffers,
        checkpoints,
        waits,
    )
)


def judged(seen: Seen) -> list[Finding]:
    """Return every finding, the gravest first and in the order of steps."""
    findings = [finding for look in LOOKS for finding in look(seen)]
    if any(finding.rule.startswith(("gradient-", "clipped-", "step-without", "requires-grad")) for finding in findings):
        findings = [finding for finding in findings if finding.rule != replicas.DRIFT]  # it follows from that
    return sorted(findings, key=lambda one: (SEVERITIES.index(one.severity), max(one.step, 0)))
