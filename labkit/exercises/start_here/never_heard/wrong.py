"""Wrong answers to never_heard, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()


wrong = WRONG.within("def never_heard(messages):\n    ...\n")

wrong(
    "takes 0 for nobody",
    "0 taken for not received",
    "return sorted({m.src for m in messages if not m.received})",
)
wrong(
    "who should have received",
    "receivers instead of senders",
    "return sorted({m.dst for m in messages if m.received is None})",
)
wrong(
    "one entry a message",
    "a rank more than once",
    "return sorted(m.src for m in messages if m.received is None)",
)
wrong("everybody who sent", "those who were heard", "return sorted({m.src for m in messages})")
wrong(
    "those that arrived",
    "those who were heard",
    "return sorted({m.src for m in messages if m.received is not None})",
)
wrong(
    "in any order",
    "not in order",
    "return sorted({m.src for m in messages if m.received is None}, reverse=True)",
)
wrong(
    "all but those who were heard",
    "one message that arrived is taken for all",
    "return sorted({m.src for m in messages} - {m.src for m in messages if m.received is not None})",
)
WRONG.wrong("prints", "returns nothing", "def never_heard(messages):\n    print(messages)\n")
wrong(
    "who received nothing",
    "those who received nothing",
    "return sorted({m.dst for m in messages} - {m.dst for m in messages if m.received is not None})",
)
wrong(
    "the last message of each decides",
    "one message decides for its rank",
    "last = {message.src: message.received for message in messages}\n"
    "return sorted(src for src, received in last.items() if received is None)",
)
wrong(
    "most lost first",
    "not in order",
    "lost = [message.src for message in messages if message.received is None]\n"
    "return sorted(set(lost), key=lambda src: -lost.count(src))",
)
wrong(
    "where they stand in the list",
    "places in the list",
    "return [at for at, message in enumerate(messages) if message.received is None]",
)
wrong(
    "more than one of them",
    "several lost",
    "lost = [message.src for message in messages if message.received is None]\n"
    "return sorted({src for src in lost if lost.count(src) > 1})",
)
wrong(
    "those of whom nothing arrived",
    "one message that arrived is taken for all",
    "return sorted({m.src for m in messages if all(o.received is None for o in messages if o.src == m.src)})",
)
wrong(
    "the first message of each decides",
    "one message decides for its rank",
    "first = {}\n"
    "for message in messages:\n"
    "    first.setdefault(message.src, message.received)\n"
    "return sorted(src for src, received in first.items() if received is None)",
)
wrong(
    "groups neighbours",
    "a rank more than once",
    "from itertools import groupby\n"
    "groups = groupby(messages, key=lambda m: m.src)\n"
    "return [src for src, group in groups if any(m.received is None for m in group)]",
)
wrong("the order of a set", "not in order", "return list({m.src for m in messages if m.received is None})")
wrong(
    "the largest rank of no messages",
    "no messages",
    "lost = [False] * (max(message.src for message in messages) + 1)\n"
    "for message in messages:\n"
    "    lost[message.src] |= message.received is None\n"
    "return [rank for rank, was in enumerate(lost) if was]",
)
wrong(
    "returns in the loop",
    "the first alone",
    "for message in messages:\n    if message.received is None:\n        return [message.src]\nreturn []",
)
wrong(
    "who sent nothing",
    "those who sent nothing",
    "sent = {m.src for m in messages}\nreturn sorted({m.dst for m in messages} - sent)",
)
