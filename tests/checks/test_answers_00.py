"""The four proofs of lesson 00, and more answers in other styles than the submissions hold."""

from __future__ import annotations

import pytest

from tests.checks.four_proofs import FourProofs, check
from tests.checks.lesson_cells import namespace

OTHER_STYLES = {
    "0.1 divides first": "def average(tensor):\n    tensor /= dist.get_world_size()\n    dist.all_reduce(tensor)\n",
    "0.1 gathers": (
        "def average(tensor):\n"
        "    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]\n"
        "    dist.all_gather(parts, tensor)\n"
        "    tensor.copy_(torch.stack(parts).mean(0))\n"
    ),
    "0.2 by map": 'def who_am_i(environ):\n    return tuple(map(int, (environ["RANK"], environ["WORLD_SIZE"])))\n',
    "0.2 says what is missing": (
        "def who_am_i(environ):\n"
        '    for name in ("RANK", "WORLD_SIZE"):\n'
        "        if name not in environ:\n"
        '            raise KeyError(f"the launcher did not set {name}")\n'
        '    return int(environ["RANK"]), int(environ["WORLD_SIZE"])\n'
    ),
    "0.3 a loop": (
        "def damaged(before, after):\n"
        "    found = []\n"
        "    for place in range(len(before)):\n"
        "        if after[place] != 0 and after[place] != before[place]:\n"
        "            found.append(place)\n"
        "    return found\n"
    ),
    "0.3 by where": (
        "def damaged(before, after):\n"
        "    return [int(i) for i in torch.where(after.bool() & ~torch.isclose(after, before))[0]]\n"
    ),
    "0.4 a loop": (
        "def never_heard(messages):\n"
        "    found = []\n"
        "    for message in messages:\n"
        "        if message.received is None and message.src not in found:\n"
        "            found.append(message.src)\n"
        "    found.sort()\n"
        "    return found\n"
    ),
    "0.4 a comprehension": (
        "def never_heard(messages):\n"
        "    lost = [m for m in messages if m.received is None]\n"
        "    return [rank for rank in range(100) if any(m.src == rank for m in lost)]\n"
    ),
}


class TestLesson00(FourProofs):
    number = "00"
    main = frozenset({"0.1"})
    sample = frozenset(
        ("0.1", name) for name in ("the quotient gets a new name", "divides by four", "rank 0 alone calls")
    )

    @pytest.mark.parametrize("variant", OTHER_STYLES)
    def test_more_answers_in_other_styles_pass(self, variant: str) -> None:
        result = check(variant.split()[0], namespace(extra=OTHER_STYLES[variant], number="00"))
        assert result.passed, result
