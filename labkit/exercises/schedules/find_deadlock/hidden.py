"""Hidden cases of find_deadlock."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.exercises.schedules.find_deadlock.exercise import Paper, paper_case
from labkit.exercises.stages.hidden_drawing import alternating, drawn, gpipe

# ---- which of them come to an end, played one message at a time


def _stuck(lines: list[str]) -> dict[int, str]:
    """Return for each stage that cannot finish the first record, in short, of its step that cannot be done."""
    partner = {"s": ("r", 1), "r": ("s", -1), "sg": ("rg", -1), "rg": ("sg", 1)}
    plans: list[list[list[str]]] = []
    for line in lines:
        plan: list[list[str]] = []
        for each in line.split():
            if each[0] not in "FB" and plan and plan[-1][0][0] not in "FB":
                plan[-1].append(each)
            else:
                plan.append([each])
        plans.append(plan)
    at, done = [0] * len(plans), [set[str]() for _ in plans]
    posted: set[tuple[int, str]] = set()

    def split(each: str) -> tuple[str, str]:
        return each.rstrip("0123456789"), each.lstrip("FBrsg")

    def allowed(stage: int, each: str) -> bool:
        kind, number = split(each)
        first, last = stage == 0, stage == len(plans) - 1
        wanted = {
            "F": [] if first else [f"r{number}"],
            "B": [f"F{number}"] + ([] if last else [f"rg{number}"]),
            "s": [f"F{number}"],
            "sg": [f"B{number}"],
        }.get(kind, [])
        return all(other in done[stage] for other in wanted)

    def possible(stage: int, each: str) -> bool:
        kind, number = split(each)
        if not allowed(stage, each) or kind not in partner:
            return allowed(stage, each)
        other, way = partner[kind]
        return (stage + way, f"{other}{number}") in posted

    for _ in range(sum(map(len, plans)) + 2):
        for stage, plan in enumerate(plans):
            if at[stage] < len(plan):
                posted.update((stage, each) for each in plan[at[stage]] if allowed(stage, each))
        for stage, plan in enumerate(plans):
            if at[stage] < len(plan) and all(possible(stage, each) for each in plan[at[stage]]):
                done[stage].update(plan[at[stage]])
                at[stage] += 1
    waiting = [stage for stage, plan in enumerate(plans) if at[stage] < len(plan)]
    return {stage: next(each for each in plans[stage][at[stage]] if not possible(stage, each)) for stage in waiting}


def _paper(lines: list[str]) -> Paper:
    return lines, _stuck(lines)


def _broken(draw: random.Random, lines: list[str]) -> list[str]:
    """Return the schedules with two neighbouring records of one stage swapped that are not both messages."""
    lines = list(lines)
    stage = draw.randrange(len(lines))
    records = lines[stage].split()
    places = [p for p in range(len(records) - 1) if {records[p][0] in "FB", records[p + 1][0] in "FB"} == {True, False}]
    place = draw.choice(places)
    records[place], records[place + 1] = records[place + 1], records[place]
    lines[stage] = " ".join(records)
    return lines


def cases(draw: random.Random) -> list[Case]:
    right = [gpipe(4, 5), alternating(5, 7), alternating(8, 3), drawn(draw, 3, 6), gpipe(1, 2)]
    broken = [_broken(draw, draw.choice(right[:4])) for _ in range(12)]
    other = [[*gpipe(3, 4)[:2], gpipe(3, draw.choice([3, 5]))[2]], [*alternating(3, 5)[:1], *alternating(3, 4)[1:]]]
    mixed = [[gpipe(3, 6)[0], *alternating(3, 6)[1:]], [alternating(2, 6)[0], gpipe(2, 6)[1]]]
    return [
        paper_case("schedules that come to an end", [_paper(lines) for lines in right]),
        paper_case("two records swapped; what work needs", [_paper(lines) for lines in broken]),
        paper_case("stages that disagree", [_paper(lines) for lines in other + mixed]),
    ]
