"""Plans of recovery for jobs of published failure rates, and what each loses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labkit.failures.policies import Policy, interruptions, replay_policy


@dataclass(frozen=True)
class Job:
    """A training on a cluster that breaks as often as one reported; all times in seconds.

    Attributes:
        nodes: All there are, those that stand by among them.
        replica_nodes: A replica of the model takes so many.
        mean_s: From one interruption to the next, on all nodes together: reported. All other figures are assumptions.
        step_s: A step on all nodes.
        save_s: How long a save to the storage takes.
        stop_s: How long it stops the training where it goes on in the background.
        reload_s: Loading it.
        copy_s: Copying the state into a neighbour's memory.
        copy_reload_s: Loading it from there.
        copies_lost: Share of the interruptions that take a node and its neighbour.
        detect_s: Until an interruption is noticed.
        restart_s: From there until all ranks run again.
        node_share: Share of the interruptions that take a node.
        repair_s: Until it is back.
        days: Length of the run.
    """

    nodes: int
    replica_nodes: int
    mean_s: float
    step_s: float
    save_s: float
    stop_s: float
    reload_s: float
    copy_s: float
    copy_reload_s: float
    copies_lost: float
    detect_s: float
    restart_s: float
    node_share: float
    repair_s: float
    days: float


@dataclass(frozen=True)
class Recovery:
    """A plan of recovery.

    Attributes:
        save_every: Steps from one save to the storage to the next.
        background: Whether a save goes on in the background.
        copy_every: Steps from one copy into a neighbour's memory to the next; 0 for none.
        spares: Nodes that stand by and do not train.
        when_short: What to do where no spare is left: "wait" for a repair, or "shrink" and train on fewer nodes.
    """

    save_every: int
    background: bool = False
    copy_every: int = 0
    spares: int = 0
    when_short: Literal["wait", "shrink"] = "wait"


JOBS = {
    "Llama 3: 2,048 nodes, 3.1 hours between failures": Job(
        2048, 16, 11_135, 10.0, 60.0, 5.0, 90.0, 4.0, 15.0, 0.08, 60.0, 300.0, 0.75, 86_400.0, 12
    ),
    "OPT-175B: 124 nodes, 9.6 hours between failures": Job(
        124, 4, 34_560, 30.0, 180.0, 20.0, 300.0, 15.0, 60.0, 0.08, 1800.0, 900.0, 0.75, 2 * 86_400.0, 30
    ),
    "FT-HSDP: 12,500 nodes, 18 minutes between failures": Job(
        12_500, 20, 1_080, 10.0, 60.0, 5.0, 90.0, 2.0, 15.0, 0.08, 30.0, 150.0, 0.75, 86_400.0, 1
    ),
}
"""Jobs that fail as often as three clusters reported."""


def fault(job: Job, plan: Recovery) -> str:
    """Return why this is no plan for the job, "" where it is one."""
    counts = {"save_every": plan.save_every, "copy_every": plan.copy_every, "spares": plan.spares}
    for name, count in counts.items():
        if type(count) is not int or count < (name == "save_every"):
            return f"{name}={count!r} is no number of {'nodes' if name == 'spares' else 'steps'}"
    if plan.spares >= job.nodes or (job.nodes - plan.spares) % job.replica_nodes:
        training = job.nodes - plan.spares
        return f"{plan.spares} spares leave {training} nodes, which are no whole replicas of {job.replica_nodes}"
    if plan.when_short not in ("wait", "shrink"):
        return f'when_short={plan.when_short!r} is neither "wait" nor "shrink"'
    return "" if type(plan.background) is bool else f"background={plan.background!r} is neither True nor False"


def policy_of(job: Job, plan: Recovery) -> Policy:
    """Return what the plan means for this job, as replay_policy takes it."""
    training = job.nodes - plan.spares
    return Policy(
        step_s=job.step_s * job.nodes / training, save_every=plan.save_every,
        save_s=job.stop_s if plan.background else job.save_s, flush_s=job.save_s if plan.background else 0.0,
        detect_s=job.detect_s, restart_s=job.restart_s, reload_s=job.reload_s, spares=plan.spares,
        repair_s=job.repair_s, node_share=job.node_share, nodes=training if plan.when_short == "shrink" else None,
        replica_nodes=job.replica_nodes,
        copy_every=plan.copy_every, copy_s=job.copy_s, copy_reload_s=job.copy_reload_s, copies_lost=job.copies_lost,
    )  # fmt: skip


def lost(job: Job, plan: Recovery, seeds: tuple[int, ...] = (0, 1, 2)) -> float:
    """Return how many percent of the time of all nodes are lost, on average over these seeds of the failures.

    A save never counts as training, nor does what is done again, nor a node that stands by or is being repaired.
    """
    policy = policy_of(job, plan)
    found = [replay_policy(policy, interruptions(job.mean_s, seed), days=job.days).goodput for seed in seeds]
    return 100 * (1 - sum(found) / len(found) * (job.nodes - plan.spares) / job.nodes)
