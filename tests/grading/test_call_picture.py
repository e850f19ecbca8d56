"""The picture of a hidden case: what it shows of real ranks, and that nothing a student wrote breaks it."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from grading.conftest import Probe
from labkit.grading.relay.calls import Call, line_of
from labkit.grading.reports.call_picture import MAX_COLUMNS, MAX_RANKS, call_picture

ALL_SEND = (
    "def shift(x):\n"
    "    rank, n = dist.get_rank(), dist.get_world_size()\n"
    "    dist.send(x, (rank + 1) % n)  # <b>&\n"
    "    out = torch.empty_like(x)\n"
    "    dist.recv(out, (rank - 1) % n)\n"
    "    return out\n"
)


def svg(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture.replace("&nbsp;", " "))


def test_a_deadlock_shows_for_each_rank_the_call_it_stands_in_and_its_line(probe: Probe) -> None:
    outcome = probe("shift", {"shift": ALL_SEND}, case=1)
    assert outcome.failure is not None and outcome.failure["kind"] == "deadlock"
    assert [(call.rank, call.kind, call.peer, call.fate) for call in outcome.calls] == [
        (rank, "send", (rank + 1) % 3, "waits") for rank in range(3)
    ]
    picture = call_picture(outcome.calls, 3)
    root = svg(picture)
    titles = [element.text or "" for element in root.iter("title")]
    assert len(titles) == 3 and all(
        "it waits here" in title and "dist.send(x, (rank + 1) % n)" in title for title in titles
    )
    assert "waits for rank 1" in picture and "<b>" not in picture
    assert "0 of them received" in picture and "ranks 0, 1, 2 waited in vain" in picture


def test_a_right_shift_shows_its_messages_as_arrows_that_never_run_back(probe: Probe) -> None:
    outcome = probe("shift", case=1)
    assert outcome.failure is None
    root = svg(call_picture(outcome.calls, 3))
    arrows = [each.get("d", "") for each in root.iter("path") if each.get("class") == "message"]
    assert len(arrows) == 3
    for arrow in arrows:
        start, end = re.findall(r"[ML]([\d.]+) ", arrow)
        assert float(end) >= float(start)
    assert "stuck" not in call_picture(outcome.calls, 3)
    told = "3 messages, together 120 bytes."
    picture = call_picture(outcome.calls, 3)
    assert f"</span>\n{told} Each rank" in picture  # in the caption, not as if it were a key


def test_a_call_of_the_library_is_named(probe: Probe) -> None:
    outcome = probe("total", {"total": "def total(x):\n    dist.all_reduce(x)\n"}, case=1)
    assert {call.kind for call in outcome.calls} == {"all_reduce"} and all(call.fate == "met" for call in outcome.calls)
    assert "Collectives: all_reduce." in call_picture(outcome.calls, 3)


def test_receives_that_are_posted_first_on_both_sides_have_a_picture() -> None:
    calls = [
        Call(rank, position, kind, 1 - rank, 8, 1 - position, "met")
        for rank in (0, 1)
        for position, kind in ((0, "recv"), (1, "send"))
    ]
    assert call_picture(calls, 2).count('class="message"') == 2


def test_many_ranks_and_calls_are_cut_and_the_fault_stays_in_the_picture() -> None:
    calls = [
        Call(rank, position, "send", (rank + 1) % 20, 8, None, "waits" if position == 299 else "unmet")
        for rank in range(20)
        for position in range(299, 300)
    ]
    calls += [Call(rank, position, "all_reduce", None, 8, None, "met") for rank in range(20) for position in range(299)]
    picture = call_picture(sorted(calls, key=lambda call: (call.rank, call.position)), 20)
    assert len(picture) < 150_000
    assert f"{MAX_RANKS} of 20 ranks" in picture and "the ones up to the fault" in picture
    assert picture.count("waits for rank") == MAX_RANKS
    assert picture.count("<rect") <= MAX_RANKS * MAX_COLUMNS


def test_what_a_student_wrote_is_escaped() -> None:
    where = "exercise 2.1, line 3: x = '</title><script>alert(1)</script>\x1b[31m\x00'"
    picture = call_picture([Call(0, 0, "<img src=x>", None, 8, None, "unmet", where)], 1)
    svg(picture)
    assert "<script" not in picture and "<img" not in picture and "\x00" not in picture


def test_without_communication_there_is_nothing_to_see(probe: Probe) -> None:
    assert call_picture(probe("double", {"double": "def double(x):\n    return x\n"}).calls, 1) == ""


def test_labels_lie_over_no_call_and_no_other_label() -> None:
    calls = [
        Call(rank, position, kind, (rank + step) % 4, 16, None, "waits", "line 1")
        for rank in range(4)
        for position, (kind, step) in enumerate([("send", 1), ("recv", 3), ("send", 2)])
    ]
    root = svg(call_picture(calls, 4))
    labels = [each for each in root.iter("text") if (each.text or "").startswith("waits for")]
    assert [each.text for each in labels] == ["waits for ranks 1, 2, 3", "waits for ranks 0, 2, 3",
                                              "waits for ranks 0, 1, 3", "waits for ranks 0, 1, 2"]  # fmt: skip
    ends = [float(each.get("x", "")) + float(each.get("width", "")) for each in root.iter("rect")]
    for label in labels:
        begin = float(label.get("x", ""))
        assert begin > max(ends) and begin + 6.6 * len(label.text or "") <= 720


def ring(bytes_each: int) -> list[Call]:
    return [
        Call(
            rank,
            position,
            kind,
            (rank + step) % 3,
            bytes_each,
            1 - position,
            "met",
            f"exercise ring, line {at}: send()",
        )
        for rank in range(3)
        for position, (kind, step, at) in enumerate([("send", 1, 7), ("recv", 2, 8)])
    ]


def test_what_a_message_may_not_hold_is_drawn_apart_and_what_it_may_is_not() -> None:
    root = svg(call_picture(ring(116), 3, most_bytes=40))
    bars = [float(each.get("width", "")) for each in root.iter("rect") if each.get("class") is None]
    over = [float(each.get("width", "")) for each in root.iter("rect") if each.get("class") == "over"]
    assert len(bars) == len(over) == 6 and all(abs(each / bars[0] - 76 / 116) < 0.01 for each in over)
    labels = [each.text for each in root.iter("text") if "in" in (each.get("class") or "").split()]
    assert labels == ["40 B", "+76 B"] * 6
    assert "more than the 40 B that a message may have" in call_picture(ring(116), 3, most_bytes=40)
    for most in (None, 116):
        picture = call_picture(ring(116), 3, most_bytes=most)
        assert "over" not in picture and picture.count(">116 B<") == 6


def test_a_head_follows_its_line_which_crosses_no_call_between() -> None:
    root = svg(call_picture(ring(8), 3))
    rows = sorted({float(each.get("y", "")) for each in root.iter("rect")})
    ends = {float(each.get("x", "")) + float(each.get("width", "")) for each in root.iter("rect")}
    lines = [each.get("d", "") for each in root.iter("path") if each.get("class") == "message"]
    heads = [each.get("transform", "") for each in root.iter("path") if each.get("class") == "head"]
    assert len(lines) == len(heads) == 3 and len(rows) == 3
    for line, head in zip(lines, heads, strict=True):
        x1, y1, x2, y2 = map(float, re.findall(r"[\d.]+", line))
        at_x, at_y, angle = map(float, re.findall(r"-?[\d.]+", head))
        assert (at_x, at_y) == (x2, y2) and abs(math.degrees(math.atan2(y2 - y1, x2 - x1)) - angle) < 0.5
        assert any(abs(x1 - end) < 0.2 for end in ends) and x2 > x1  # in the gap between two columns


def test_the_line_of_a_call_is_of_the_exercises_own_cell() -> None:
    calls = ring(8)
    assert (line_of(calls, "ring", 1, 0), line_of(calls, "ring", 1, 1)) == (7, 8)
    for exercise, rank, position in (("other", 1, 0), ("ring", None, None), ("ring", 1, 2), ("r.ng", 1, 0)):
        assert line_of(calls, exercise, rank, position) == 0
