"""Finding a deadlock on paper. What is expected is written beside each case, by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.schedules.find_deadlock.driver import drive
from labkit.exercises.stages.sayings import said
from labkit.exercises.stages.written import ALTERNATING_3_4, DRAWN_3_4, GPIPE_3_3, RECORDS, read, short

Paper = tuple[Sequence[str], Mapping[int, str]]
"""The stages' schedules in short, and for each stage that gets stuck, the record it stands at."""


def paper_case(name: str, papers: Sequence[Paper]) -> Case:
    """Return a case of one rank that asks find_stuck about each of these pipelines."""
    asked: list[Value] = [[cast(Value, read(text, stage)) for stage, text in enumerate(texts)] for texts, _ in papers]
    right: list[Value] = [
        {str(stage): cast(Value, read(text, stage)[0]) for stage, text in stuck.items()} for _, stuck in papers
    ]
    shown: list[Value] = [list(texts) for texts, _ in papers]
    return Case(name, 1, ({"pipelines": asked},), {"stuck": right, "texts": shown})


def oracle(case: Case) -> list[Values]:
    """Return the answers that were written beside the schedules."""
    return [{"stuck": case.about["stuck"]}]


def _pairs(case: Case, got: Got) -> list[tuple[Any, Any, list[str]]]:
    if not isinstance(got, tuple) or not isinstance(got[0].get("stuck"), list):
        return []
    right, texts = cast(list[Any], case.about["stuck"]), cast(list[list[str]], case.about["texts"])
    return list(zip(right, cast(list[Any], got[0]["stuck"]), texts, strict=True))


def _said(stuck: Any) -> str:
    if not isinstance(stuck, dict):
        return str(stuck)
    return "{" + ", ".join(f"{stage}: {said(record)}" for stage, record in sorted(stuck.items())) + "}"


def judge(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether every pipeline's stuck stages were found, each at its record."""
    for right, came, texts in _pairs(case, got):
        if right != came:
            lines = "\n".join(f"stage {stage}: {text}" for stage, text in enumerate(texts))
            return Verdict(
                False,
                message=f"For these schedules, in short,\n{lines}\nfind_stuck returned {_said(came)}, "
                f"expected {_said(right)}.",
                expected=_said(right),
                got=_said(came),
            )
    return Verdict(True)


def _some(test: Callable[[Any, Any], bool]) -> Callable[[Case, Got, Wire], bool]:
    return lambda case, got, wire: any(test(right, came) for right, came, _ in _pairs(case, got) if right != came)


def _all(test: Callable[[Any, Any], bool]) -> Callable[[Case, Got, Wire], bool]:
    return lambda case, got, wire: (
        bool(_pairs(case, got)) and all(test(right, came) for right, came, _ in _pairs(case, got))
    )


def _passed_a_send(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a stage that stands at a send was said to stand further on, or to have come to its end."""
    for right, came, texts in _pairs(case, got):
        if right == came or not isinstance(came, dict):
            continue
        for stage, record in right.items():
            where = [short(each) for each in read(texts[int(stage)], int(stage))]
            there = where.index(short(came[stage])) if short(came.get(stage)) in where else len(where)
            between = where[where.index(short(record)) : there]
            if record["kind"] in ("Send", "SendGrad") and any(each[0] in "FB" for each in between):
                return True
    return False


_FACING = (
    "F0 s0 F1 s1 F2 s2 F3 s3 rg0 B0 rg1 B1 rg2 B2 rg3 B3",
    "r0 F0 r1 F1 B0 sg0 B1 sg1 r2 F2 r3 F3 B2 sg2 B3 sg3",
)
_ONE_BY_ONE = ("F0 s0 F1 s1 B0 rg0 B1 rg1", "r0 F0 B0 sg0 r1 F1 B1 sg1")

EXERCISE = judged(
    id="find_deadlock",
    functions=("find_stuck",),
    given=RECORDS,
    driver=drive,
    oracle=oracle,
    judge=judge,
    visible=(
        paper_case(
            "schedules that come to an end", [(GPIPE_3_3, {}), (ALTERNATING_3_4, {}), (DRAWN_3_4, {}), (("F0 B0",), {})]
        ),
        paper_case(
            "two stages disagree about the number of microbatches",
            [
                (("F0 s0 F1 s1 rg0 B0 rg1 B1", "r0 F0 B0 sg0"), {0: "s1"}),
                (("F0 s0 rg0 B0", "r0 F0 r1 F1 B0 sg0"), {0: "rg0", 1: "r1"}),
            ],
        ),
        paper_case(
            "sends that face each other, and the same in one batch",
            [
                (_FACING, {0: "s2", 1: "sg0"}),
                (("F0 s0 F1 s1 F2 s2 rg0 B0 rg1 B1 F3 s3 rg2 B2 rg3 B3", _FACING[1]), {}),
            ],
        ),
        paper_case(
            "work before what it needs",
            [
                (_ONE_BY_ONE, {0: "B0", 1: "sg0"}),
                (("F0 s0 B0 rg0", "r0 F0 B0 sg0"), {0: "B0", 1: "sg0"}),
                (("F0 s0 rg0 B0", "F0 r0 B0 sg0"), {0: "s0", 1: "F0"}),
                (("F0 s0 rg0 B0", "r0 B0 F0 sg0"), {0: "rg0", 1: "B0"}),
                (("F0 s0 rg0 B0", "r0 F0 sg0 B0"), {0: "rg0", 1: "sg0"}),
            ],
        ),
        paper_case(
            "3 stages, where one that is stuck keeps the others",
            [
                (
                    (
                        "F0 s0 F1 s1 rg0 B0 rg1 B1",
                        "r0 F0 s0 rg0 B0 sg0 rg1 r1 F1 s1 B1 sg1",
                        "r0 F0 r1 F1 B0 sg0 B1 sg1",
                    ),
                    {0: "s1", 1: "rg0", 2: "r1"},
                )
            ],
        ),
    ),
    distributed=False,
    hints=(
        "Play it with coins: one coin a stage, on the first of its steps. Which coin may move? When do you stop?",
        "Keep three things: at[stage], the step it stands at; the set of posted messages, as (stage, record); the set "
        "of records that are done. Go over all stages again and again: post what the step has, and if all of it can "
        "be done, go on to the next step. Stop when a whole round moved nobody.",
        "partner = {Send: Recv, Recv: Send, SendGrad: RecvGrad, RecvGrad: SendGrad}; a message on `stage` can be done "
        "if (record.peer, partner[type(record)](stage, record.microbatch)) is in posted. In the end: for each stage "
        "that is not through, the first record of steps[at[stage]] that cannot be done.",
    ),
    mistakes=(
        Mistake(
            "a dict was asked for",
            "Return a dict: for each stage that is stuck, the record it stands at. {} says that all come to an end.",
            _some(lambda right, came: not isinstance(came, dict)),
        ),
        Mistake(
            "a step instead of a record",
            "Where a stage stands is one record: the first of its step that cannot be done, not the step's whole list.",
            _some(lambda right, came: isinstance(came, dict) and any(isinstance(each, str) for each in came.values())),
        ),
        Mistake(
            "does not see what work needs",
            "A Forward without its Recv, a Backward without its Forward or its RecvGrad, a Send before its Forward: "
            "those never can be done either.",
            lambda case, got, wire: "needs" in case.name and not judge(case, got, wire).passed,
        ),
        Mistake(
            "never finds anything",
            "No deadlock was found at all: a stage that cannot go on must stay where it is.",
            lambda case, got, wire: (
                bool(_pairs(case, got))
                and judge(case, got, wire).passed is False
                and all(came == {} for _, came, _ in _pairs(case, got))
            ),
        ),
        Mistake(
            "waits where it need not",
            "Schedules that come to an end were called stuck. Messages that stand together are posted together, and "
            "one message of a batch may be done before another; go round until nobody moves.",
            _some(lambda right, came: right == {} and came != {}),
        ),
        Mistake(
            "sends do not wait",
            "A send is done only when its partner has been posted; a stage that stands at one can be stuck too.",
            _passed_a_send,
        ),
        Mistake(
            "another record of the same step",
            "The right stages, at other records: name the first record of the step that cannot be done.",
            lambda case, got, wire: (
                not judge(case, got, wire).passed
                and _all(lambda right, came: isinstance(came, dict) and set(came) == set(right))(case, got, wire)
            ),
        ),
        Mistake(
            "stages that wait for a stuck stage",
            "A stage that waits for one that is stuck is stuck too: all of them belong in the result.",
            _some(lambda right, came: isinstance(came, dict) and set(came) < set(right)),
        ),
    ),
)

__all__ = ["EXERCISE", "Paper", "paper_case", "short"]
