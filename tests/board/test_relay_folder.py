"""A folder that anybody can write to and read: no file stops the board, and no key can be read in it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labkit.board import relay, seals
from labkit.board.relay import Reader, open_folder, send
from labkit.errors import ConfigError

SECRET = "the board's own"
Taken = list[tuple[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    open_folder(tmp_path / "shared", "abcde-fghij", SECRET)
    return tmp_path / "shared"


def reader(folder: Path, taken: Taken) -> Reader:
    def take(what: str, body: Any) -> None:
        taken.append((what, body["nickname"]))

    return Reader(folder, take, "abcde-fghij", SECRET)


def plain_line(name: str) -> bytes:
    return json.dumps({"what": "join", "body": {"nickname": name, "key": "k" * 16}}).encode() + b"\n"


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def linking(place: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(place)


STOPPERS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "zeros": linking("/dev/zero"),
    "unreadable": linking("/proc/1/mem"),
    "gone": linking("nowhere"),
    "not mine": lambda path: path.touch(mode=0),
    "endless line": holding(b"x" * (9 << 20)),
    "deep": holding(b"[" * 100_000 + b"\n"),
    "surrogates": holding(
        rb'{"what": "join", "body": {"nickname": "\ud800", "key": "\ud800"}, "seal": "\ud800"}' + b"\n"
    ),
    "huge number": holding(b'{"what": "join", "body": {"nickname": 1e999, "key": ' + b"9" * 5000 + b"}}\n"),
    "wrong seal": holding(b'{"what": "join", "body": {}, "from": "2", "number": 1, "seal": "x"}\n'),
    "seal of nothing": holding(b'{"what": "join", "body": {}, "from": 5, "number": [], "seal": 1}\n'),
}
GARBAGE = (b"x" * (5 << 20), b"\xff\xfe{}", b"[1]", b"5", b"null", b'{"what":"result","body":null}')


def strangers(count: int) -> bytes:
    """Return lines each of which says that it is another person's: to find out whose costs a power of 2,048 bits."""
    lines = ({"what": "join", "body": {}, "from": f"{5 + at:x}", "number": 1, "seal": "0"} for at in range(count))
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


@pytest.mark.in_turn
def test_a_file_full_of_strangers_keeps_nobody_waiting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "000.jsonl").write_bytes(strangers(20_000))
    powers: list[str] = []
    agree = seals.agreed
    monkeypatch.setattr(seals, "agreed", lambda secret, others: powers.append(others) or agree(secret, others))
    taken: Taken = []
    reading = reader(folder, taken)
    send(folder, "join", {"nickname": "Grace", "key": "g" * 16})
    for _ in range(3):
        reading.read()
    assert taken == [("join", "Grace")] and len(powers) <= 2 + 1  # Grace's own, as she sends and as she is read


def test_who_writes_more_than_there_is_time_for_waits_for_the_others_and_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "000.jsonl").write_bytes(plain_line("a") * 3)
    (folder / "001.jsonl").write_bytes(plain_line("b"))
    taken: Taken = []
    reading = reader(folder, taken)
    clock = itertools.count(0.0, 0.6)  # there is time for one line
    monkeypatch.setattr(relay, "_MOST_SECONDS", 1.0)
    monkeypatch.setattr(relay.time, "monotonic", lambda: next(clock))
    for _ in range(12):
        reading.read()
    assert [name for _, name in taken] == ["a", "b", "a", "a"]


@pytest.mark.in_turn
@pytest.mark.parametrize("what", STOPPERS)
def test_no_file_stops_anybody_else(folder: Path, what: str) -> None:
    for name in ("000.jsonl", "zzz.jsonl"):
        STOPPERS[what](folder / name)
    taken: Taken = []
    reading = reader(folder, taken)
    send(folder, "join", {"nickname": "Grace", "key": "g" * 16})
    for _ in range(3):
        reading.read()
    assert taken == [("join", "Grace")]
    send(folder, "say", {"nickname": "Grace", "key": "g" * 16, "what": "help"})
    reading.read()
    assert taken == [("join", "Grace"), ("say", "Grace")]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_a_line_costs_that_line(folder: Path, garbage: bytes) -> None:
    (folder / "a.jsonl").write_bytes(plain_line("Before") + garbage + b"\n" + plain_line("Later"))
    taken: Taken = []
    reading = reader(folder, taken)
    for _ in range(4):
        reading.read()
    assert taken == [("join", "Before"), ("join", "Later")]


def test_a_line_that_breaks_the_taking_costs_itself(folder: Path) -> None:
    taken: list[str] = []

    def take(what: str, body: Any) -> None:
        taken.append(body["nickname"])
        if body["nickname"] == "Bad":
            raise ConfigError("no")

    (folder / "a.jsonl").write_bytes(plain_line("Bad") + plain_line("Good"))
    Reader(folder, take, "", SECRET).read()
    assert taken == ["Bad", "Good"]


def test_what_lies_in_the_folder_gives_no_key_away_and_serves_nobody_else(folder: Path) -> None:
    key = "0123456789abcdef"
    taken: list[tuple[str, str, str]] = []

    def take(what: str, body: Any) -> None:
        taken.append((what, body["nickname"], body["key"]))

    reading = Reader(folder, take, "abcde-fghij", SECRET)
    send(folder, "join", {"nickname": "Ada", "key": key})
    reading.read()
    (mine,) = folder.glob("*.jsonl")
    everything = "".join(path.read_text() for path in folder.iterdir())
    known = taken[0][2]
    assert key not in everything and known not in everything and len(known) == 64
    line = json.loads(mine.read_text())
    forged = [
        mine.read_text(),  # once more
        json.dumps(line | {"number": line["number"] + 1}) + "\n",
        json.dumps(line | {"what": "say", "body": {"nickname": "Ada", "what": "help"}}) + "\n",
        json.dumps(line | {"from": seals.shown("another key")}) + "\n",
    ]
    (folder / "mallory.jsonl").write_text("".join(forged))
    reading.read()
    assert taken == [("join", "Ada", known)]
    send(folder, "say", {"nickname": "Ada", "key": key, "what": "help"})
    reading.read()
    assert taken[1:] == [("say", "Ada", known)]  # the same key each time, as for a learner who reaches the board


def test_a_name_that_is_taken_is_told_and_what_lies_in_its_way_is_not(folder: Path) -> None:
    taken: Taken = []
    reading = reader(folder, taken)
    send(folder, "join", {"nickname": "Ada", "key": "a" * 16})
    reading.read()
    with pytest.raises(ConfigError, match="somebody else in this class is called 'Ada'"):
        send(folder, "join", {"nickname": "Ada", "key": "b" * 16})
    send(folder, "join", {"nickname": "Ada", "key": "a" * 16})


@pytest.mark.parametrize("what", ["pipe", "folder", "zeros", "endless line", "deep"])
def test_a_class_file_that_is_none_is_told(tmp_path: Path, what: str) -> None:
    STOPPERS[what](tmp_path / relay.CLASS)
    with pytest.raises(ConfigError, match="is not a class's relay folder"):
        send(tmp_path, "join", {"nickname": "Ada", "key": "a" * 16})


def test_two_who_have_a_secret_each_agree_and_nobody_shows_it() -> None:
    assert seals.agreed("a", seals.shown("b")) == seals.agreed("b", seals.shown("a"))
    assert seals.agreed("a", seals.shown("c")) != seals.agreed("a", seals.shown("b"))
    for nothing in ("0", "1", "f" * 513, f"{seals._PRIME - 1:x}", f"{seals._PRIME:x}", "-2", "zz"):
        with pytest.raises(ValueError, match=r"no number of the group|invalid literal"):
            seals.agreed("a", nothing)
    assert pow(2, (seals._PRIME - 1) // 2, seals._PRIME) == 1  # a prime that was copied right
