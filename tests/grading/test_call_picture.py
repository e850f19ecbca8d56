"""The picture of a hidden case: what it shows of real ranks, and that nothing a student wrote breaks it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from grading.conftest import Probe
from labkit.grading.relay.calls import Call
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
