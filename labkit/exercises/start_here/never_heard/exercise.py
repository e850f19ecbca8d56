"""Messages that nobody received."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, cast

from labkit.checks.case import Case, Got, Value
from labkit.checks.declared import Mistake
from labkit.checks.wire import Wire
from labkit.exercises.start_here.answers import NOTHING, answers, values_of
from labkit.exercises.start_here.never_heard.driver import drive

Fields = dict[str, Any]


def message(src: int, dst: int, received: int | None, sequence: int = 0) -> Fields:
    """Return a message of 8 bytes as the record of a run has it; received is None if nobody did."""
    return {"src": src, "dst": dst, "bytes": 8, "kind": "isend", "sequence": sequence, "received": received}


def messages_case(name: str, lists: Sequence[Sequence[Fields]]) -> Case:
    """Return a case of never_heard."""
    return Case(name, 1, ({"lists": cast(list[Value], [list(each) for each in lists])},))


def drawn(seed: int, world_size: int, count: int) -> list[Fields]:
    """Return messages between random ranks, some of them never received."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        src, dst = draw.sample(range(world_size), 2)
        found.append(message(src, dst, draw.choice([None, 0, 1, number]), number))
    return found


def _lists(case: Case) -> list[list[Fields]]:
    return cast(list[list[Fields]], case.inputs[0]["lists"])


def expected(case: Case) -> list[Value]:
    """Return, for each list, who sent something that nobody received."""
    return [sorted({m["src"] for m in each if m["received"] is None}) for each in _lists(case)]


def _call(case: Case, place: int) -> str:
    shown = [
        f"{m['src']} to {m['dst']}{'' if m['received'] is not None else ' (not received)'}" for m in _lists(case)[place]
    ]
    return (
        f"never_heard of the messages {'; '.join(shown[:6])}{'; ...' if len(shown) > 6 else ''}"
        if shown
        else ("never_heard of no messages")
    )


def _falsy(case: Case, place: int) -> Value:
    return sorted({m["src"] for m in _lists(case)[place] if not m["received"]})


def _receivers(case: Case, place: int) -> Value:
    return sorted({m["dst"] for m in _lists(case)[place] if m["received"] is None})


def _heard_nothing(case: Case, place: int) -> Value:
    messages = _lists(case)[place]
    found = sorted({m["dst"] for m in messages} - {m["dst"] for m in messages if m["received"] is not None})
    return cast(Value, found) or None


def _sent_nothing(case: Case, place: int) -> Value:
    messages = _lists(case)[place]
    found = sorted({m["dst"] for m in messages} - {m["src"] for m in messages})
    return cast(Value, found) or None


def _several_lost(case: Case, place: int) -> Value:
    lost = [m["src"] for m in _lists(case)[place] if m["received"] is None]
    return sorted({src for src in lost if lost.count(src) > 1})


def _indices(case: Case, place: int) -> Value:
    return [at for at, m in enumerate(_lists(case)[place]) if m["received"] is None]


def _each(case: Case, place: int) -> Value:
    return sorted(m["src"] for m in _lists(case)[place] if m["received"] is None)


def _heard(case: Case, place: int) -> Value:
    return sorted({m["src"] for m in _lists(case)[place] if m["received"] is not None})


def _senders(case: Case, place: int) -> Value:
    return sorted({m["src"] for m in _lists(case)[place]})


def _heard_at_least_once_left_out(case: Case, place: int) -> Value:
    each = _lists(case)[place]
    heard = {m["src"] for m in each if m["received"] is not None}
    return sorted({m["src"] for m in each} - heard)


def _one_decides(last: bool) -> Callable[[Case, int], Value]:
    """Return what is found where the last message of a rank decides for it, or the first."""

    def way(case: Case, place: int) -> Value:
        decides = {m["src"]: m["received"] for m in _lists(case)[place][:: 1 if last else -1]}
        return sorted(src for src, received in decides.items() if received is None)

    return way


def _first_alone(case: Case, place: int) -> Value:
    return [m["src"] for m in _lists(case)[place] if m["received"] is None][:1]


def _repeated(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether these are the right ranks, some of them more than once, in any order."""
    mine, right = values_of(got), expected(case)
    whole = all(isinstance(each, list) and all(type(rank) is int for rank in each) for each in mine)
    if not whole or mine == right:
        return False
    lists = cast(list[list[int]], mine)
    return [sorted(set(each)) for each in lists] == right and any(len(each) > len(set(each)) for each in lists)


def _no_order(case: Case, got: Got, wire: Wire) -> bool:
    return bool(values_of(got)) and all(
        isinstance(mine, list) and all(type(rank) is int for rank in mine) and sorted(cast(list[int], mine)) == wanted
        for mine, wanted in zip(values_of(got), expected(case), strict=True)
    )


EXERCISE = answers(
    id="never_heard",
    functions=("never_heard",),
    driver=drive,
    expected=expected,
    call=_call,
    visible=(
        messages_case("no messages; all received", [[], [message(1, 0, 0), message(2, 0, 1)]]),
        messages_case(
            "two that nobody took", [[message(1, 0, 1), message(2, 0, None), message(3, 4, None), message(4, 0, 0)]]
        ),
        messages_case(
            "several of one rank",
            [
                [message(3, 0, None, 0), message(1, 0, None, 0), message(3, 0, None, 1), message(3, 0, 2, 2)],
                [message(10, 0, 0, 0), message(8, 0, None, 0), message(1, 0, None, 0), message(10, 0, None, 1)],
            ],
        ),
    ),
    hints=(
        "Print the messages of a run that went well and of one that did not. Which field differs?",
        "received is None for a message that nobody took (and 0 for one that was taken by its receiver's first call). "
        "Collect the senders of those, each once, in order.",
        "return sorted({m.src for m in messages if m.received is None})",
    ),
    mistakes=(
        NOTHING,
        Mistake("0 taken for not received",
                "received is the position of the receive among the receiver's calls, and the first one has position "
                "0. Ask whether it is None.", {"answers": _falsy}),
        Mistake("receivers instead of senders",
                "You collect the receivers (dst); collect the senders that were not heard (src).",
                {"answers": _receivers}),
        Mistake("those who received nothing",
                "You return the ranks that received none of the messages to them; return those that sent one which "
                "nobody received.", {"answers": _heard_nothing}),
        Mistake("those who sent nothing",
                "You return the ranks that sent no message. Who was never heard sent one, and nobody received it: look "
                "at received, not at who is no src.", {"answers": _sent_nothing}),
        Mistake("places in the list",
                "You return where the lost messages stand in the list; return who sent them, message.src.",
                {"answers": _indices}),
        Mistake("several lost",
                "You name a rank only if several of its messages were lost. One that nobody received is enough.",
                {"answers": _several_lost}),
        Mistake("a rank more than once",
                "A rank that sent several messages is named once: collect the ranks in a set.", {"answers": _each},
                seen=_repeated),
        Mistake("the first alone",
                "You stop at the first message that nobody received: a return within the loop ends it. Go through all "
                "messages, and return then.", {"answers": _first_alone}),
        Mistake("one message decides for its rank",
                "One message of each rank decides here, its first or its last: a dictionary by rank keeps one value. "
                "Ask whether any of its messages was received by nobody.",
                {"answers": (_one_decides(last=True), _one_decides(last=False))}),
        Mistake("those who were heard",
                "Your answer has senders whose messages arrived. Return only those that sent a message which nobody "
                "received.", {"answers": (_heard, _senders)}),
        Mistake("one message that arrived is taken for all",
                "You leave out a rank as soon as one of its messages arrived. Name every rank that sent at least one "
                "message that nobody received.", {"answers": _heard_at_least_once_left_out}),
        Mistake("no messages",
                "The list of messages may be empty: max, min and reduce have nothing to begin with there. Return an "
                "empty list.", says=("empty",), certain=True),
        Mistake("not in order", "These are the right ranks; give them in order, smallest first, as a list.",
                seen=_no_order),
    ),
)  # fmt: skip
