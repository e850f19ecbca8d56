"""Finding a deadlock on paper. What is expected is written beside each case, by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from labkit.checks.case import Case, Failure, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import Each, OneOf
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.schedules.find_deadlock.driver import drive
from labkit.exercises.schedules.find_deadlock.misplayed import of_any_kind, of_any_stage, stuck
from labkit.exercises.stages.record_text import record_text
from labkit.exercises.stages.written import ALTERNATING_3_4, DRAWN_3_4, GPIPE_3_3, RECORDS, read, short

Paper = tuple[Sequence[str], Mapping[int, str]]
"""The stages' schedules in short, and for each stage that gets stuck, the record it stands at."""


def paper_case(name: str, papers: Sequence[Paper]) -> Case:
    """Return a case of one rank that asks find_stuck about each of these pipelines."""
    asked: list[Value] = [[read(text, stage) for stage, text in enumerate(texts)] for texts, _ in papers]
    right: list[Value] = [{str(stage): read(text, stage)[0] for stage, text in stuck.items()} for _, stuck in papers]
    shown: list[Value] = [list(texts) for texts, _ in papers]
    return Case(name, 1, ({"pipelines": asked},), {"stuck": right, "texts": shown})


def oracle(case: Case) -> list[Values]:
    """Return the answers that were written beside the schedules."""
    return [{"stuck": case.about["stuck"], "changed": False}]


def structure(case: Case) -> list[Any]:
    """Return what comes: of each pipeline a dict of any stages, or in words what else."""
    count = len(listed(case.about, "stuck"))
    return [{"stuck": Each(OneOf((dict, str)), least=count, most=count), "changed": bool}]


def _said(stuck: Any) -> str:
    if not isinstance(stuck, dict):
        return str(stuck)
    return "{" + ", ".join(f"{stage}: {record_text(record)}" for stage, record in sorted(stuck.items())) + "}"


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield the first pipeline whose stuck stages were not found, each at its record."""
    right, texts = listed(case.about, "stuck"), listed(case.about, "texts")
    answers = list(zip(right, listed(got[0], "stuck"), texts, strict=True))
    finds_nothing = any(right) and "needs" not in case.name and all(came == {} for _, came, _ in answers)
    misplayed = _misplayed([came for _, came, _ in answers], texts)
    for wanted, came, pipeline in answers:
        if wanted == came:
            continue
        lines = "\n".join(f"stage {stage}: {text}" for stage, text in enumerate(pipeline))
        text = f"For these schedules, in short,\n{lines}\nfind_stuck returned {_said(came)}, expected {_said(wanted)}."
        name = misplayed or _NEVER * finds_nothing or _mistake(wanted, came, pipeline, "needs" in case.name)
        yield Finding(name, text, _said(wanted), _said(came))
    if got[0]["changed"]:
        yield Finding(_CHANGED, "find_stuck changed a schedule that it was given: the next call would see another one.")


def _misplayed(answers: Sequence[Any], texts: Sequence[Sequence[str]]) -> str:
    """Return by which other rule of the game all these answers come out, or ""."""
    if not all(isinstance(each, dict) for each in answers):
        return ""
    came = [{int(stage): short(record) for stage, record in each.items()} for each in answers]
    for name, play in _OTHER_RULES.items():
        if came == [play(pipeline) for pipeline in texts]:
            return name
    return ""


def _mistake(right: Mapping[str, Any], came: Any, texts: Sequence[str], needs: bool) -> str:
    """Return which mistake leads to an answer about one pipeline, or ""."""
    if not isinstance(came, dict):
        return _NO_DICT
    if any(each in ("None", "None (NoneType)") for each in came.values()):
        return _FINISHED
    if any(isinstance(each, str) for each in came.values()):
        return _STEP
    waits = _held_for_nothing(came, texts)
    if needs:
        return waits if set(right) == set(came) else _NEEDS
    if not right:
        return waits or _WAITS
    if not came and len(right) == 1 and _passed_another_microbatch(right, texts):
        return _MICROBATCH
    if _passed_a_send(right, came, texts):
        return _SENDS
    return _ANOTHER if set(came) == set(right) else _KEPT if set(came) < set(right) else ""


_PARTNERS = {"s": "r", "r": "s", "sg": "rg", "rg": "sg"}


def _held_for_nothing(came: Mapping[str, Any], texts: Sequence[str]) -> str:
    """Return why a stage may have been said to stand at a record that can be done, or ""."""
    plans = [[short(each) for each in read(text, stage)] for stage, text in enumerate(texts)]
    at = {int(stage): short(record) for stage, record in came.items()}
    for stage, record in at.items():
        kind, number = record.rstrip("0123456789"), record.lstrip("FBrsg")
        if kind == "F" and stage == 0:
            return _FIRST
        if kind == "B" and stage == len(plans) - 1 and f"F{number}" in plans[stage][: plans[stage].index(record)]:
            return _LAST
        peer, partner = stage + (1 if kind in ("s", "rg") else -1), f"{_PARTNERS.get(kind)}{number}"
        if kind not in _PARTNERS or partner not in plans[peer]:
            continue
        there = plans[peer].index(at[peer]) if at.get(peer) in plans[peer] else len(plans[peer])
        between = plans[peer][min(there, plans[peer].index(partner)) : max(there, plans[peer].index(partner)) + 1]
        if there == plans[peer].index(partner):
            return _BOTH_DONE
        if not any(each[0] in "FB" for each in between):
            return _SINGLY
        if there > plans[peer].index(partner):
            return _FORGOTTEN
    return ""


def _passed_another_microbatch(right: Mapping[str, Any], texts: Sequence[str]) -> bool:
    """Return whether a stage stands at a receive for which there are sends of other microbatches alone."""
    for stage, record in right.items():
        kind, step = {"Recv": ("s", -1), "RecvGrad": ("sg", 1)}.get(record["kind"], ("", 0))
        peer = int(stage) + step
        sent = {each["microbatch"] for each in read(texts[peer], peer) if short(each).rstrip("0123456789") == kind}
        if sent and record["microbatch"] not in sent:
            return True
    return False


def _passed_a_send(right: Mapping[str, Any], came: Mapping[str, Any], texts: Sequence[str]) -> bool:
    """Return whether a stage that stands at a send was said to stand further on, or to have come to its end."""
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

_NO_DICT, _STEP, _NEEDS, _NEVER, _WAITS, _SENDS, _ANOTHER, _KEPT = (
    "a dict was asked for", "a step instead of a record", "does not see what work needs", "never finds anything",
    "waits where it need not", "sends do not wait", "another record of the same step",
    "stages that wait for a stuck stage",
)  # fmt: skip
_FINISHED, _FIRST, _LAST, _BOTH_DONE, _SINGLY, _FORGOTTEN, _MICROBATCH, _TOO_SOON = (
    "stages that finish are named", "the first stage waits for a Recv", "the last stage waits for a gradient",
    "done only with its partner", "a batch posted one by one", "what was posted is forgotten",
    "a partner of another microbatch", "one round is not enough",
)  # fmt: skip
_ANYBODY, _AHEAD = "a partner of another pair of stages", "posted before its stage gets there"
_KIND, _ANYWAY, _CHANGED = "a partner of another kind", "posted with nothing to send", "the schedules changed"
_OTHER_RULES: dict[str, Callable[[Sequence[str]], dict[int, str]]] = {
    _ANYBODY: lambda texts: stuck(texts, matches=of_any_stage),
    _AHEAD: lambda texts: stuck(texts, ahead=True),
    _KIND: lambda texts: stuck(texts, matches=of_any_kind),
    _ANYWAY: lambda texts: stuck(texts, posts_anyway=("s", "sg")),
}
EXERCISE = declared(
    id="find_deadlock",
    functions=("find_stuck",),
    given=RECORDS,
    driver=drive,
    oracle=oracle,
    structure=structure,
    looks=(find,),
    visible=(
        paper_case(
            "schedules that come to an end", [(GPIPE_3_3, {}), (ALTERNATING_3_4, {}), (DRAWN_3_4, {}), (("F0 B0",), {})]
        ),
        paper_case(
            "two stages disagree about the number of microbatches",
            [
                (("F0 s0", "r0 F0 B0 r1 F1 B1"), {1: "r1"}),
                (("F0 s0 F1 s1 rg0 B0 rg1 B1", "r0 F0 B0 sg0"), {0: "s1"}),
                (("F0 s0 rg0 B0", "r0 F0 r1 F1 B0 sg0"), {0: "rg0", 1: "r1"}),
                (("F0 s0 rg0 B0", "r0 F0 B0"), {0: "rg0"}),
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
                (("F0 s0 s1 rg0 B0 F1 rg1 B1", "r0 F0 B0 sg0 r1 F1 B1 sg1"), {0: "s1", 1: "r1"}),
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
        "Play it with coins: one coin per stage, on its first step. Which coin may move? When do you stop?",
        "Keep three things: at[stage], the step it stands at; the set of posted messages, as (stage, record); the set "
        "of records that are done. Go over all stages again and again: post what the step has, and if all of it can "
        "be done, go on to the next step. Stop when a whole round moved nobody.",
        "partner = {Send: Recv, Recv: Send, SendGrad: RecvGrad, RecvGrad: SendGrad}; a message on `stage` can be done "
        "if (record.peer, partner[type(record)](stage, record.microbatch)) is in posted. In the end: for each stage "
        "that is not through, the first record of steps[at[stage]] that cannot be done.",
    ),
    mistakes=(
        Mistake(_NO_DICT,
                "Return a dict: for each stuck stage, the record where it is stuck. {} means that all finish."),
        Mistake(_STEP,
                "A stage is stuck at one record: the first of its step that cannot be done, not the step's list."),
        Mistake(_FINISHED, "Only stages that are stuck belong in the dict: leave out those that finish."),
        Mistake(_FIRST,
                "The first stage receives nothing: its Forward needs no Recv. Every other stage's does."),
        Mistake(_LAST,
                "The last stage receives no gradient, because it computes the loss: its Backward needs its Forward "
                "alone."),
        Mistake(_BOTH_DONE,
                "Two partners stand at each other, both posted, and neither is done: a message is done as soon as its "
                "partner has been posted. It does not wait until the partner is done."),
        Mistake(_SINGLY,
                "All messages of a step are posted when the stage arrives there, not one after another. One that "
                "cannot be posted yet does not hold back the others."),
        Mistake(_FORGOTTEN,
                "A stage waits for a message that the other side posted in an earlier step: what was posted stays "
                "posted, so remember it."),
        Mistake(_MICROBATCH,
                "A receive was done by a send of another microbatch: a partner has the same microbatch."),
        Mistake(_KIND,
                "A message was done by one of another kind: the partner of a Send is a Recv, that of a SendGrad a "
                "RecvGrad. The stages and the microbatch alone do not make a partner."),
        Mistake(_ANYBODY,
                "A message was done by one that other stages exchange. The partner stands on stage record.peer and "
                "names this stage as its peer; kind and microbatch alone do not make a partner."),
        Mistake(_AHEAD,
                "A message was done by a partner that its stage never gets to. Only what stands in a step where a "
                "stage has arrived is posted, not all that its schedule holds."),
        Mistake(_ANYWAY,
                "A Send before its Forward, or a SendGrad before its Backward, was posted. It has nothing to send, so "
                "it is never posted, and the other side waits for it."),
        Mistake(_CHANGED,
                "The schedules that find_stuck was given are not what they were. Remember where each stage stands, in "
                "a list of numbers, and take nothing out of a schedule."),
        Mistake(_TOO_SOON,
                "You ask for a record that cannot be done in a step where all can be done: go over the stages again "
                "and again, until a whole round moves nobody.",
                seen=lambda case, got, wire: isinstance(got, Failure) and got.error == "StopIteration",
                certain=True),
        Mistake(_NEEDS,
                "A Forward without its Recv, a Backward without its Forward or its RecvGrad, a Send before its "
                "Forward: those can never be done either."),
        Mistake(_NEVER, "These schedules stop, and no stage was named: a stage that cannot continue must stay where "
                "it is."),
        Mistake(_WAITS,
                "Schedules that finish were called stuck. Messages of a batch are posted together, what is posted "
                "stays posted, and the last stage needs no gradient. Repeat until nobody moves.", general=True),
        Mistake(_SENDS, "A send is done only when its partner has been posted; a stage can be stuck at a send too."),
        Mistake(_ANOTHER,
                "The stages are right but the records are not: name the first record of the step that cannot be done."),
        Mistake(_KEPT, "A stage that waits for a stuck one is stuck too: all of them belong in the result."),
    ),
)  # fmt: skip

__all__ = ["EXERCISE", "Paper", "paper_case", "short"]
