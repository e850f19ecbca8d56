"""Wrong answers to find_deadlock, each a mistake that learners really make, and the mistake a check must name."""

# ruff: noqa: E501

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
wrong = WRONG.wrong
changed = WRONG.changed


changed("the list of stages", "a dict was asked for",
        ("return {stage: next(r for r in plans[stage][at[stage]] if not can(stage, r)) for stage in waiting}", "return waiting"))  # fmt: skip
wrong("always fine", "never finds anything", "def find_stuck(schedules):\n    return {}\n")
changed("one message after another", "a batch posted one by one",
        ("plans = [list(steps(schedule)) for schedule in schedules]",
         "plans = [[[record] for record in schedule] for schedule in schedules]"))  # fmt: skip
changed("sends never wait", "sends do not wait",
        ("        if isinstance(record, Message):\n            return (",
         "        if isinstance(record, (Recv, RecvGrad)):\n            return ("))  # fmt: skip
changed("work needs nothing", "does not see what work needs",
        ("        m = record.microbatch\n        if isinstance(record, Send):", "        m = record.microbatch\n        return []\n        if isinstance(record, Send):"))  # fmt: skip
changed("names the last record of the step", "another record of the same step",
        ("next(r for r in plans[stage][at[stage]] if not can(stage, r))", "plans[stage][at[stage]][-1]"))  # fmt: skip
changed(
    "names the lowest stage only",
    "stages that wait for a stuck stage",
    ("for stage in waiting}", "for stage in waiting[:1]}"),
)
changed("the whole step", "a step instead of a record",
        ("next(r for r in plans[stage][at[stage]] if not can(stage, r))", "plans[stage][at[stage]]"))  # fmt: skip
RECORD = "next(r for r in plans[stage][at[stage]] if not can(stage, r))"
changed("the first record of the step", "another record of the same step", (RECORD, "plans[stage][at[stage]][0]"))
changed("None for those that finish", "stages that finish are named",
        (f"return {{stage: {RECORD} for stage in waiting}}",
         f"return {{stage: {RECORD} if stage in waiting else None for stage in range(len(plans))}}"))  # fmt: skip
changed("None if all finish", "a dict was asked for", ("for stage in waiting}", "for stage in waiting} or None"))
changed(
    "one round", "one round is not enough", ("    while moved:\n        moved = False\n", "    for _ in range(1):\n")
)
changed("only those that wait for nobody stuck", "stages that wait for a stuck stage",
        (f"return {{stage: {RECORD} for stage in waiting}}",
         f"found = {{stage: {RECORD} for stage in waiting}}\n"
         "    return {s: r for s, r in found.items() if getattr(r, 'peer', None) not in found}"))  # fmt: skip
READY = "                moved = moved or not posted.issuperset(ready)\n"
changed("posts a step as a whole", "a batch posted one by one",
        (READY, "                ready = ready if len(ready) == len(step) else set()\n" + READY))  # fmt: skip
changed("only what stands there is posted", "what was posted is forgotten",
        ("        moved = False\n", "        moved, posted = False, set()\n"),
        (READY, ""),
        ("        for stage, plan in enumerate(plans):\n            while", """\
        for stage, plan in enumerate(plans):
            step = plan[at[stage]] if at[stage] < len(plan) else []
            posted |= {(stage, r) for r in step if isinstance(r, Message) and done.issuperset(needs(stage, r))}
        for stage, plan in enumerate(plans):
            if"""),
        ("                    break\n", "                    continue\n"))  # fmt: skip
changed("any message is enough", "sends do not wait",
        ("if not all(can(stage, record) for record in step):", "if not any(can(stage, record) for record in step):"))  # fmt: skip
changed("the first stage receives, too", "the first stage waits for a Recv", (" if stage > 0 else []", ""))
changed(
    "the last stage gets a gradient", "the last stage waits for a gradient", (" if stage < len(plans) - 1 else []", "")
)
NEED = "does not see what work needs"
changed("backward needs its gradient alone", NEED, ("return [(stage, Forward(m)), *arrived]", "return arrived"))
changed(
    "backward needs its forward alone", NEED, ("return [(stage, Forward(m)), *arrived]", "return [(stage, Forward(m))]")
)
changed("forward needs nothing", NEED, ("return [(stage, Recv(stage - 1, m))] if stage > 0 else []", "return []"))
changed("a send needs nothing", NEED, ("            return [(stage, Forward(m))]\n", "            return []\n"))
changed(
    "a gradient's send needs nothing", NEED, ("            return [(stage, Backward(m))]\n", "            return []\n")
)
PARTNER = "(record.peer, partner[type(record)](stage, record.microbatch)) in posted"
changed("a partner of any microbatch", "a partner of another microbatch",
        (PARTNER, "any(s == record.peer and type(r) is partner[type(record)] for s, r in posted)"))  # fmt: skip
changed("done when the partner is done", "done only with its partner", (PARTNER, PARTNER.replace("posted", "done")))
changed("gradients for activations", "done only with its partner",
        ("{Send: Recv, Recv: Send, SendGrad: RecvGrad, RecvGrad: SendGrad}",
         "{Send: RecvGrad, Recv: SendGrad, SendGrad: Recv, RecvGrad: Send}"))  # fmt: skip
changed(
    "the gradient from two stages on", "waits where it need not", ("RecvGrad(stage + 1, m)", "RecvGrad(stage + 2, m)")
)
changed("a partner of any kind", "a partner of another kind",
        (PARTNER, "any(s == record.peer and r.peer == stage and r.microbatch == record.microbatch for s, r in posted)"))  # fmt: skip
changed("posts what it does not have", "posted with nothing to send",
        ("if isinstance(r, Message) and done.issuperset(needs(stage, r))}", "if isinstance(r, Message)}"))  # fmt: skip
changed("takes the records out", "the schedules changed",
        ("    waiting = [stage", """\
    for schedule, plan, place in zip(schedules, plans, at):
        del schedule[: sum(len(step) for step in plan[:place])]
    waiting = [stage"""))  # fmt: skip
changed("a partner of any stage", "a partner of another pair of stages",
        (PARTNER, "any(type(r) is partner[type(record)] and r.microbatch == record.microbatch for _, r in posted)"))  # fmt: skip
POSTED = "posted: set[tuple[int, Record]] = set()"
changed("all messages from the start", "posted before its stage gets there",
        (POSTED, POSTED.replace("set()", "{(s, r) for s, each in enumerate(schedules) for r in each}")))  # fmt: skip
