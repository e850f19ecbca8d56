# base: solution
# loses: find_deadlock, shortest_step
"""The shortest step is 1F1B once more, which beats nobody; sends never wait in find_stuck."""


# %% shortest_step
def shortest_step(num_stages, num_microbatches, most_held):
    words = {"Forward": "F", "Backward": "B"}
    every = [one_f_one_b(stage, num_stages, num_microbatches) for stage in range(num_stages)]
    return "one", [[f"{words[type(work).__name__]}{work.microbatch}" for work in order] for order in every]


# %% find_deadlock
def find_stuck(schedules: list[list[Record]]) -> dict[int, Record]:
    """Return, for each stage that can never finish, the first record of its step that cannot be done; else {}.

    Args:
        schedules: The schedule of each stage, by its number.
    """
    plans = [list(steps(schedule)) for schedule in schedules]
    partner = {Send: Recv, Recv: Send, SendGrad: RecvGrad, RecvGrad: SendGrad}
    at = [0] * len(plans)
    posted: set[tuple[int, Record]] = set()
    done: set[tuple[int, Record]] = set()

    def needs(stage: int, record: Record) -> list[tuple[int, Record]]:
        """Return what must have been done on this stage before."""
        m = record.microbatch
        if isinstance(record, Send):
            return [(stage, Forward(m))]
        if isinstance(record, SendGrad):
            return [(stage, Backward(m))]
        if isinstance(record, Forward):
            return [(stage, Recv(stage - 1, m))] if stage > 0 else []
        if isinstance(record, Backward):
            arrived = [(stage, RecvGrad(stage + 1, m))] if stage < len(plans) - 1 else []
            return [(stage, Forward(m)), *arrived]
        return []

    def can(stage: int, record: Record) -> bool:
        if not done.issuperset(needs(stage, record)):
            return False
        if isinstance(record, (Recv, RecvGrad)):
            return (record.peer, partner[type(record)](stage, record.microbatch)) in posted
        return True

    moved = True
    while moved:
        moved = False
        for stage, plan in enumerate(plans):
            while at[stage] < len(plan):
                step = plan[at[stage]]
                ready = {(stage, r) for r in step if isinstance(r, Message) and done.issuperset(needs(stage, r))}
                moved = moved or not posted.issuperset(ready)
                posted |= ready
                if not all(can(stage, record) for record in step):
                    break
                done |= {(stage, record) for record in step}
                at[stage] += 1
                moved = True
    waiting = [stage for stage, plan in enumerate(plans) if at[stage] < len(plan)]
    return {stage: next(r for r in plans[stage][at[stage]] if not can(stage, r)) for stage in waiting}
