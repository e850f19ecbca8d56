"""The board as a room uses it: a real server process, real HTTP, a real check that reports to it."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import labkit
from labkit.board import membership, posting, reporting
from labkit.board.membership import Membership
from labkit.board.results import reported
from labkit.board.room import Room
from labkit.board.server import Board
from labkit.errors import ConfigError, EnvironmentProblem
from tests.lasting_port import lasting_port

ROOT = Path(__file__).parents[2]
BOARD = (sys.executable, "-c", "from labkit.cli import main; main()", "board")


@dataclass
class Running:
    process: subprocess.Popen[str]
    link: str
    instructors: str

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(urlsplit(self.link).netloc, timeout=180)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def send(self, nickname: str, exercise: str, passed: bool) -> tuple[int, str]:
        body = {"nickname": nickname, "key": f"key of {nickname}", "exercise": exercise, "passed": passed}
        return self.call("POST", f"{urlsplit(self.link).path}/result", json.dumps(body).encode())

    def standing(self) -> dict[str, dict[str, dict[str, list[int]]]]:
        status, text = self.call("GET", f"{urlsplit(self.link).path}/standing")
        assert status == 200, text
        return json.loads(text)  # type: ignore[no-any-return]


def start(folder: Path, port: int = 0, relay: Path | None = None) -> Running:
    command = [*BOARD, "--host", "127.0.0.1", "--port", str(port), *(["--relay", str(relay)] if relay else [])]
    process = subprocess.Popen(
        [*command, "--course", str(ROOT), "--results", str(folder / "class.sqlite")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline()
    found = re.match(r"Class board: (http://127\.0\.0\.1:\d+/c/[a-z0-9-]+)\n", first)
    if not found:
        process.kill()
        said = first + process.communicate(timeout=300)[0]
        pytest.fail(said)
    while not (own := re.match(r"Only for you .*: http://127\.0\.0\.1:\d+(/i/\S+)\n", process.stdout.readline())):
        assert process.poll() is None
    return Running(process, found[1], own[1])


def stop(running: Running, how: signal.Signals = signal.SIGINT) -> int:
    running.process.send_signal(how)
    code = running.process.wait(60)
    assert running.process.stdout is not None
    running.process.stdout.close()
    return code


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Running]:
    running = start(tmp_path)
    yield running
    if running.process.poll() is None:
        stop(running)


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A learner's computer on which nothing was sent before; it waits for a board on a loaded machine."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(reporting, "_SENDER", reporting._Sender())
    monkeypatch.setattr(posting, "SECONDS", 60.0)
    return tmp_path / "config" / "labkit" / "class.json"


@pytest.mark.in_turn
def test_a_check_of_a_learner_who_joined_is_on_the_board(board: Running, own_home: Path) -> None:
    def root_bytes(num_bytes: int, world_size: int) -> float:
        return 0.0

    def ring_bytes(num_bytes: int, world_size: int) -> float:
        return 0.0

    assert repr(labkit.join_class(board.link, "ada")) == "On the class board as ada."
    assert own_home.stat().st_mode & 0o077 == 0
    assert not labkit.check("count_bytes", root_bytes, ring_bytes).passed
    reporting.wait()
    assert board.standing()["learners"] == {"ada": {"count_bytes": [0, 1]}}
    labkit.leave_class()
    labkit.check("count_bytes", root_bytes, ring_bytes)
    reporting.wait()
    assert board.standing()["learners"] == {"ada": {"count_bytes": [0, 1]}}


@pytest.mark.in_turn
def test_a_board_that_is_away_is_named_at_the_next_check_and_told_everything_later(
    own_home: Path, tmp_path: Path
) -> None:
    port = lasting_port()
    board = start(tmp_path, port)
    labkit.join_class(board.link, "bo")
    stop(board)
    assert reporting.report("naive_all_reduce", True) == ""
    reporting.wait()
    assert "did not answer" in reporting.report("count_bytes", False)
    reporting.wait()
    again = start(tmp_path, port)
    try:
        assert again.link == board.link
        reporting.report("chunk_bounds", True)
        reporting.wait()
        assert again.standing()["learners"] == {
            "bo": {"naive_all_reduce": [1, 1], "count_bytes": [0, 1], "chunk_bounds": [1, 1]}
        }
    finally:
        stop(again)


@pytest.mark.in_turn
def test_a_board_that_refuses_at_once_is_still_named_only_at_the_next_check(
    board: Running, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labkit.join_class(board.link, "bo")
    stop(board)
    tell = reporting._SENDER.tell

    def tell_and_wait(membership: Membership, what: str, about: str, body: dict[str, object]) -> None:
        tell(membership, what, about, body)
        reporting.wait()

    monkeypatch.setattr(reporting._SENDER, "tell", tell_and_wait)
    assert reporting.report("naive_all_reduce", True) == ""
    assert "did not answer" in reporting.report("count_bytes", False)


@pytest.mark.in_turn
def test_a_taken_name_a_wrong_link_and_a_dead_board_are_told_at_joining(board: Running, own_home: Path) -> None:
    board.send("cy", "naive_all_reduce", True)
    with pytest.raises(ConfigError, match="somebody else in this class is called 'cy'"):
        labkit.join_class(board.link, "cy")
    with pytest.raises(ConfigError, match="this board has no such class"):
        labkit.join_class(re.sub(r"/c/.*", "/c/aaaaa-bbbbb", board.link), "cy")
    stop(board)
    with pytest.raises(EnvironmentProblem, match=r"did not answer \([^)]*\)\. Compare the link with the one on the"):
        labkit.join_class(board.link, "dee")
    assert not own_home.exists()


@pytest.mark.parametrize("status", [200, 403])
def test_what_answers_and_is_no_board_is_told_at_joining(own_home: Path, status: int) -> None:
    """A network's login page says 200 to everything; a proxy says 403."""

    class LoginPage(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), LoginPage) as server:
        threading.Thread(target=server.handle_request).start()
        with pytest.raises(EnvironmentProblem, match=rf"is not a class board \(HTTP {status}\)\. Compare the link"):
            labkit.join_class(f"http://127.0.0.1:{server.server_port}/c/aaaaa-bbbbb", "ada")
    assert not own_home.exists()


@pytest.mark.in_turn
def test_who_joined_is_on_the_board_before_any_check(board: Running, own_home: Path) -> None:
    labkit.join_class(board.link, "ada")
    assert board.standing()["learners"] == {"ada": {}}


@pytest.mark.in_turn
def test_help_guesses_and_mistakes_reach_the_instructor_and_the_wall_has_no_names_of_them(
    board: Running, own_home: Path
) -> None:
    with pytest.raises(ConfigError, match="you have not joined a class"):
        labkit.i_need_help()
    labkit.join_class(board.link, "ada")
    assert "sees that you want help" in labkit.i_need_help()
    labkit.predict("tree_wins_below", 12.5, unit="MB")
    reporting.report("count_bytes", False, mistake="forgot the root")
    reporting.wait()
    wall: Any = board.standing()
    assert (wall["help"], wall["done"]) == (1, 0)
    assert wall["poll"] == {"guess": "tree_wins_below", "unit": "MB", "values": [12.5], "came_out": None} | {
        "asked": "Up to how many MB is the tree faster than the ring?"
    }
    assert wall["help_at"] == {}  # nobody else is at her exercise
    assert "helped" not in wall and "mistakes" not in wall
    own = json.loads(board.call("GET", f"{board.instructors}/standing")[1])
    [[who, seconds, on, mistake]] = own["helped"]
    assert (who, on, mistake) == ("ada", "count_bytes", "forgot the root") and 0 <= seconds < 60
    assert own["mistakes"] == {"count_bytes": [["forgot the root", ["ada"]]]}
    assert board.call("POST", f"{board.instructors}/helped", b'{"nickname": "bo"}')[0] == 400
    assert (
        board.call("POST", f"{board.instructors}/helped", b'{"nickname": "ada"}')[0] == 204
    )  # somebody has been there
    assert json.loads(board.call("GET", f"{board.instructors}/standing")[1])["helped"] == []
    assert board.standing()["help"] == 0
    labkit.i_need_help()
    assert board.standing()["help"] == 1
    labkit.i_am_done()
    own = json.loads(board.call("GET", f"{board.instructors}/standing")[1])
    assert own["helped"] == [] and own["finished"] == ["ada"]


@pytest.mark.in_turn
def test_the_instructor_renames_and_removes_and_nobody_else_does(board: Running, own_home: Path) -> None:
    labkit.join_class(board.link, "rude name")
    body = json.dumps({"nickname": "rude name", "to": "table 3"}).encode()
    own = urlsplit(board.link).path
    assert board.call("POST", f"{own}/rename", body)[0] == 404
    assert board.call("POST", f"{own.replace('/c/', '/i/')}/rename", body)[0] == 403
    assert board.call("POST", f"{board.instructors}/rename", body)[0] == 204
    assert board.call("POST", f"{board.instructors}/rename", body) == (400, "nobody on the board is called 'rude name'")
    reporting.report("count_bytes", True)  # their machine goes on under the old name
    reporting.wait()
    assert board.standing()["learners"] == {"table 3": {"count_bytes": [1, 1]}}
    assert board.call("POST", f"{board.instructors}/remove", b'{"nickname": "table 3"}')[0] == 204
    reporting.report("count_bytes", True)
    reporting.wait()
    assert "took 'rude name' off the board" in reporting.report("count_bytes", True)
    reporting.wait()
    assert board.standing()["learners"] == {}
    assert board.call("POST", f"{board.instructors}/remove", b"[]")[0] == 400


@pytest.mark.in_turn
def test_a_folder_relays_where_machines_cannot_reach_each_other(tmp_path: Path, own_home: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a class's relay folder"):
        labkit.join_class(str(tmp_path), "ada")
    board = start(tmp_path, relay=tmp_path / "shared")
    try:
        labkit.join_class(str(tmp_path / "shared"), "ada")
        reporting.report("count_bytes", True)
        reporting.wait()
        while board.standing()["learners"] != {"ada": {"count_bytes": [1, 1]}}:
            assert board.process.poll() is None
            time.sleep(0.05)
        labkit.leave_class()
        with pytest.raises(ConfigError, match="somebody else in this class is called 'ada'"):
            labkit.join_class(str(tmp_path / "shared"), "ada")
        (tmp_path / "shared" / "odd.jsonl").write_text('no json\n[]\n{"what": "result", "body": 3}\n')
        os.mkfifo(tmp_path / "shared" / "0.jsonl")
        (tmp_path / "shared" / "1.jsonl").mkdir()
        labkit.join_class(str(tmp_path / "shared"), "bo")
        while "bo" not in board.standing()["learners"]:
            assert board.process.poll() is None
            time.sleep(0.05)
    finally:
        stop(board)


@pytest.mark.long
def test_two_hundred_learners_at_once_lose_nothing(board: Running) -> None:
    def work(number: int) -> list[int]:
        sent = [
            board.send(f"learner {number}", each, each != "chunk_bounds")[0]
            for each in ("naive_all_reduce", "count_bytes", "chunk_bounds")
        ]
        return [*sent, board.call("GET", f"{urlsplit(board.link).path}/standing")[0]]

    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(work, range(200)))
    assert answers == [[204, 204, 204, 200]] * 200
    standing = board.standing()
    assert len(standing["learners"]) == 200
    assert all(
        results == {"naive_all_reduce": [1, 1], "count_bytes": [1, 1], "chunk_bounds": [0, 1]}
        for results in standing["learners"].values()
    )
    assert standing["holdup"] == "chunk_bounds"


@pytest.mark.in_turn
def test_a_killed_board_goes_on_where_it_was(board: Running, tmp_path: Path) -> None:
    assert board.send("ada", "naive_all_reduce", True)[0] == 204
    assert stop(board, signal.SIGKILL) == -signal.SIGKILL
    again = start(tmp_path)
    try:
        assert urlsplit(again.link).path == urlsplit(board.link).path
        assert again.standing()["learners"] == {"ada": {"naive_all_reduce": [1, 1]}}
    finally:
        assert stop(again) == 0


@pytest.mark.in_turn
def test_strangers_and_what_is_too_large_are_refused(board: Running) -> None:
    own = urlsplit(board.link).path
    assert board.call("GET", "/c/aaaaa-bbbbb")[0] == 403
    assert board.call("GET", "/c/aaaaa-bbbbb/standing")[0] == 403
    assert board.call("POST", "/c/aaaaa-bbbbb/result", b"{}")[0] == 403
    assert board.call("GET", "/")[0] == board.call("GET", "/c/../etc/passwd")[0] == 404
    assert board.call("POST", f"{own}/result", b"no json")[0] == 400
    assert board.call("POST", f"{own}/result", b"[" * 1000)[0] == 400
    for odd in (b'"\xff"', b"[]", b'{"nickname": {}, "key": [], "exercise": [], "passed": {}}', b"NaN", b"9" * 900):
        assert board.call("POST", f"{own}/result", odd)[0] == 400, odd
    unhashable = {"nickname": "ada", "key": "key of ada", "exercise": ["x"], "passed": True}
    assert board.call("POST", f"{own}/result", json.dumps(unhashable).encode())[0] == 400
    assert board.call("GET", f"{own}/result")[0] == 405
    try:
        status = board.call("POST", f"{own}/result", b"x" * 10_000_000)[0]
    except (ConnectionError, http.client.HTTPException):
        status = 413
    assert status in (400, 413)
    assert board.standing()["learners"] == {}


@pytest.mark.in_turn
def test_the_page_asks_nobody_but_the_board(board: Running) -> None:
    page = board.call("GET", urlsplit(board.link).path)[1]
    assert not re.findall(r"(?:https?:)?//[a-z]", page.replace("<!doctype html>", ""))


@pytest.mark.in_turn
def test_a_taken_port_is_told_with_its_cure(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [*BOARD, "--host", "127.0.0.1", "--course", str(ROOT)]
        command += ["--port", str(taken.getsockname()[1]), "--results", str(tmp_path / "class.sqlite")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "cannot listen on 127.0.0.1" in done.stderr and "choose another with --port" in done.stderr


def test_each_class_of_a_learner_gets_a_key_of_its_own(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "post", lambda *_: ("", False))
    first = labkit.join_class("http://10.0.0.1:8321/c/aaaaa-bbbbb", "ada")
    assert labkit.join_class("http://10.0.0.2:8321/c/aaaaa-bbbbb", "ada").key == first.key, "the board moved"
    assert labkit.join_class("http://10.0.0.1:8321/c/ccccc-ddddd", "ada").key != first.key


def test_what_is_no_class_link_is_told_what_one_looks_like(own_home: Path) -> None:
    with pytest.raises(ConfigError, match="one looks like http://"):
        labkit.join_class("10.0.0.1:8321", "ada")
    assert not own_home.exists()


def test_plans_are_scored_by_the_board_alone(tmp_path: Path) -> None:
    def score(exercise: str, plans: object) -> float:
        if plans == "forged":
            raise ConfigError("no plan")
        return 1.25 if plans == [[0, 1]] else 1.5

    results = Room(tmp_path / "class.sqlite")
    board = Board(results, {"02": [("ring_plan", "2.4", "Ring plan")]}, score)
    for nickname, plans in (("ada", [[0, 0]]), ("ada", [[0, 1]]), ("bo", [[0, 0]]), ("bo", [[1, 0]])):
        body = {"nickname": nickname, "key": f"key of {nickname}", "exercise": "ring_plan", "passed": True}
        board.record(board.scored(reported(body | {"plans": plans}, board.exercises)), "10.0.0.1")
    forged = {"nickname": "eve", "key": "key of eve", "exercise": "ring_plan", "passed": True, "plans": "forged"}
    with pytest.raises(ConfigError, match="no plan"):
        board.scored(reported(forged, board.exercises))
    with pytest.raises(ConfigError, match="and no others"):
        reported(forged | {"score": 0.1}, board.exercises)
    assert json.loads(board.standing())["rankings"] == {"ring_plan": [["ada", 1.25], ["bo", 1.5]]}
    results.close()
