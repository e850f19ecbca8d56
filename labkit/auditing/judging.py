"""All rules, put to what was seen."""

from __future__ import annotations

from labkit.auditing.catalogue import Look
from labkit.auditing.finding import SEVERITIES, Finding
from labkit.auditing.rules import (
    batches,
    buffers,
    checkpoints,
    clipping,
    collectives,
    decisions,
    exchanged,
    gradients,
    idle,
    leftovers,
    losses,
    model_buffers,
    modes,
    order,
    parameters,
    random_state,
    reference,
    replicas,
    resume,
    samples,
    schedulers,
    shards,
    waits,
)
from labkit.auditing.seen import Seen

LOOKS: tuple[Look, ...] = tuple(
    module.look
    for module in (
        gradients,
        leftovers,
        replicas,
        shards,
        parameters,
        losses,
        samples,
        batches,
        random_state,
        modes,
        clipping,
        collectives,
        decisions,
        schedulers,
        model_buffers,
        buffers,
        exchanged,
        checkpoints,
        waits,
        idle,
        reference,
        resume,
        order,
    )
)


_PART_REPLICAS = (
    "gradient-", "clipped-", "step-without", "requires-grad", "collectives-mis", "learning-rates", "decided-",
)  # fmt: skip


def judged(seen: Seen) -> list[Finding]:
    """Return every finding, the gravest first and in the order of steps."""
    findings = [finding for look in LOOKS for finding in look(seen)]
    if any(finding.rule.startswith(_PART_REPLICAS) for finding in findings):
        findings = [finding for finding in findings if finding.rule != replicas.DRIFT]  # it follows from that
    if any(finding.severity == "wrong" and finding.rule != reference.PARTS for finding in findings):
        findings = [finding for finding in findings if finding.rule != reference.PARTS]  # so does that
    if any(finding.rule == modes.DIFFER for finding in findings):  # a rank that evaluates counts no batches
        findings = [finding for finding in findings if finding.rule != collectives.MISMATCHED]
    if any(finding.rule == resume.APART for finding in findings):
        findings = [finding for finding in findings if finding.rule != checkpoints.INCOMPLETE]  # it says what is lost
    return sorted(findings, key=lambda one: (SEVERITIES.index(one.severity), max(one.step, 0)))
