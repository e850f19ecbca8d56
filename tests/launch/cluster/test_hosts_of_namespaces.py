"""Three hosts, real networks between them, each with its own clock: a run, and everything that can break one."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from labkit.lessons.source import load
from tests.namespaces import Hosts, words_why_not

pytestmark = pytest.mark.long

OFFSETS = (1000, 2000, 500)
HEAD = """
import json, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests were started in the background
import torch, torch.distributed as dist
import labkit
from labkit.errors import RunError

def clock_and_sum():
    x = torch.ones(1000) * (dist.get_rank() + 1)
    for _ in range(5):
        dist.barrier()
    dist.all_reduce(x)
    return x[0].item(), os.environ["MASTER_ADDR"], os.environ["GLOO_SOCKET_IFNAME"], time.monotonic()

def goes_on():
    x = torch.ones(1000)
    print("begins", flush=True)
    until = time.monotonic() + 600
    while time.monotonic() < until:
        dist.all_reduce(x)
        time.sleep(0.01)

def failing(fn, world, **options):
    begin = time.time()
    try:
        labkit.run(fn, on=world, **options)
    except RunError as error:
        print("ERROR", json.dumps([type(error).__name__, str(error), time.time(), error.timeline is not None]))

def main():
    world = labkit.cluster(ADDRESS, ranks_per_host=2, insecure=True)
    print("HOSTS", json.dumps(world.hosts))
"""
TAIL = """
if __name__ == "__main__":
    main()
"""


def program(address: str, body: str) -> str:
    return HEAD.replace("ADDRESS", repr(address)) + "\n".join(f"    {line}" for line in body.splitlines()) + TAIL


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    why_not = words_why_not()
    if why_not:
        pytest.skip(why_not)
    with Hosts(3, tmp_path, offsets=OFFSETS) as made:
        yield made


def error_of(said: str) -> tuple[str, str, float, bool]:
    found = re.search(r"^ERROR (.*)$", said, re.M)
    assert found, said
    kind, message, at, timeline = json.loads(found[1])
    return kind, message, at, timeline


def test_three_hosts_run_and_their_clocks_are_found_within_the_error_claimed(hosts: Hosts) -> None:
    address = hosts.start_dask()
    said = hosts.on_notebook(
        program(
            address,
            """run = labkit.run(clock_and_sum, on=world)
print("RESULTS", json.dumps(run.results))
clock = {key: value.tolist() for key, value in run.timeline.tables["clock"].items()}
calls = run.timeline.spans(kind="all_reduce")
print("CLOCK", json.dumps(clock))
print("CALLS", json.dumps([calls.start_ns.tolist(), calls.end_ns.tolist()]))
from labkit.launch.cluster.hosts import hosts_of
print("OFFSETS", json.dumps([[h.clock.before.offset_ns, h.clock.before.error_ns, h.clock.after.offset_ns,
    h.clock.after.error_ns] for h in hosts_of(world.client, world.options).hosts]))""",
        )
    )
    assert json.loads(re.search(r"HOSTS (.*)", said)[1]) == ["host-a", "host-b", "host-c"]
    results = json.loads(re.search(r"RESULTS (.*)", said)[1])
    assert [each[:3] for each in results] == [[21.0, "10.77.0.1", "eth0"]] * 6
    assert results[2][3] - results[0][3] > 900, "the hosts' own clocks are far apart"
    offsets = json.loads(re.search(r"OFFSETS (.*)", said)[1])
    for (before, error, after, error_after), ahead in zip(offsets, OFFSETS, strict=True):
        truth = (OFFSETS[0] - ahead) * 10**9
        assert abs(before - truth) <= error
        assert abs(after - truth) <= error_after
        assert error < 50_000_000
    clock = json.loads(re.search(r"CLOCK (.*)", said)[1])
    assert clock["host"] == ["host-a"] * 2 + ["host-b"] * 2 + ["host-c"] * 2
    assert clock["err_ns"][0] == 0 < clock["err_ns"][2]
    begins, ends = json.loads(re.search(r"CALLS (.*)", said)[1])
    assert max(begins) - max(clock["err_ns"]) * 2 < min(ends), "on one clock an all_reduce ends after all have begun"
    assert "is open to whoever is on that network" in said
    assert hosts.nothing_left([0, 1, 2])


def running(hosts: Hosts) -> str:
    """Start a run that goes on; return the scheduler's address once every rank is in it."""
    address = hosts.start_dask()
    hosts.start_notebook(program(address, "failing(goes_on, world, timeout=300)"))
    for rank in range(6):
        hosts.wait_for("notebook", f"[rank {rank}] begins")
    assert [len(hosts.ranks_on(number)) for number in range(3)] == [2, 2, 2]
    return address


def named_within(hosts: Hosts, since: float, seconds: float = 5.0) -> tuple[str, str]:
    kind, message, at, has_timeline = error_of(hosts.wait_for("notebook", "ERROR", 60))
    assert has_timeline, "what was recorded until then is kept"
    assert at - since < seconds + 3, "on a loaded machine three seconds more"
    return kind, message


def test_a_host_cut_off_is_named_and_nothing_is_left_on_any(hosts: Hosts) -> None:
    running(hosts)
    hosts.cut(1)
    kind, message = named_within(hosts, time.time())
    assert kind == "HostLost"
    assert message.startswith("Host host-b with ranks 2 to 3 is lost: no word from it for 4 s.")
    assert hosts.nothing_left([0, 1, 2]), "the host that was cut off noticed by itself that nobody renews its lease"


def test_a_frozen_host_is_named_and_ends_its_ranks_when_it_thaws(hosts: Hosts) -> None:
    running(hosts)
    frozen = hosts.processes_on(2)
    hosts.signal(frozen, signal.SIGSTOP)
    kind, message = named_within(hosts, time.time())
    assert kind == "HostLost"
    assert message.startswith("Host host-c with ranks 4 to 5 is lost: no word from it for 4 s.")
    assert hosts.nothing_left([0, 1])
    hosts.signal(frozen, signal.SIGCONT)
    assert hosts.nothing_left([2])


def test_a_dask_worker_that_is_killed_ends_the_run_and_is_named(hosts: Hosts) -> None:
    running(hosts)
    workers = [each for each in hosts.processes_on(1) if "dask_worker" in " ".join(each.cmdline())]
    hosts.signal(workers, signal.SIGKILL)
    kind, message = named_within(hosts, time.time())
    assert (kind, message.partition(":")[0]) == ("HostLost", "Host host-b with ranks 2 to 3 is lost")
    assert "the Dask worker there has ended" in message
    assert hosts.nothing_left([0, 1, 2])


def test_an_agent_that_is_killed_takes_its_ranks_with_it(hosts: Hosts) -> None:
    running(hosts)
    agents = [each for each in hosts.processes_on(1) if "cluster.agent" in " ".join(each.cmdline())]
    hosts.signal(agents, signal.SIGKILL)
    kind, message = named_within(hosts, time.time())
    assert (kind, message.partition(":")[0]) == ("HostLost", "Host host-b with ranks 2 to 3 is lost")
    assert hosts.nothing_left([0, 1, 2])


def test_an_agent_that_stands_still_is_ended_by_its_dask_worker(hosts: Hosts) -> None:
    running(hosts)
    agents = [each for each in hosts.processes_on(1) if "cluster.agent" in " ".join(each.cmdline())]
    hosts.signal(agents, signal.SIGSTOP)
    kind, _ = named_within(hosts, time.time())
    assert kind == "HostLost"
    assert hosts.nothing_left([0, 1, 2], 40)


def test_a_scheduler_that_is_gone_ends_the_run(hosts: Hosts) -> None:
    running(hosts)
    hosts.signal(
        [each for each in hosts.processes_on(0) if "dask_scheduler" in " ".join(each.cmdline())], signal.SIGKILL
    )
    kind, _, _, _ = error_of(hosts.wait_for("notebook", "ERROR", 90))
    assert kind == "HostLost"
    assert hosts.nothing_left([0, 1, 2])


def test_a_notebook_that_is_killed_leaves_no_rank(hosts: Hosts) -> None:
    running(hosts)
    hosts.signal(psutil.Process(hosts.processes["notebook"].pid).children(recursive=True), signal.SIGKILL)
    hosts.processes["notebook"].kill()
    assert hosts.nothing_left([0, 1, 2])


def test_an_interrupt_ends_all_ranks(hosts: Hosts) -> None:
    running(hosts)
    hosts.processes["notebook"].send_signal(signal.SIGINT)
    hosts.processes["notebook"].wait(60)
    assert "KeyboardInterrupt" in hosts.said("notebook")
    assert hosts.nothing_left([0, 1, 2])


def commands_of_the_page(program: str) -> list[list[str]]:
    """Return the commands of docs/elsewhere.md that name hosts of this file."""
    page = (Path(__file__).parents[3] / "docs" / "elsewhere.md").read_text(encoding="utf-8")
    return [shlex.split(line) for line in re.findall(rf"^ +({program} .*)$", page, re.M)]


def test_the_commands_of_the_page_make_a_cluster_that_hangs_up_on_strangers(tmp_path: Path) -> None:
    why_not = words_why_not() or ("" if shutil.which("openssl") else "certificates take the program openssl")
    if why_not:
        pytest.skip(why_not)
    made = commands_of_the_page("openssl")
    assert len(made) == 2
    for command in made:
        subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=tmp_path)
    with Hosts(2, tmp_path) as hosts:
        (scheduler,), workers = commands_of_the_page("dask scheduler"), commands_of_the_page("dask worker")
        hosts.start("scheduler", hosts.name(0), sys.executable, "-m", *scheduler)
        for number, worker in enumerate(workers):
            hosts.start(f"worker{number}", hosts.name(number), sys.executable, "-m", *worker)
        secured_run_and_strangers(hosts, "tls://10.77.0.1:8786")


def secured_run_and_strangers(hosts: Hosts, address: str) -> None:
    files = 'tls_ca_file="ca.pem", tls_client_cert="cert.pem", tls_client_key="key.pem"'
    security = f"security=distributed.Security(require_encryption=True, {files})"
    secured = (
        program(
            address,
            """print("RESULTS", json.dumps(labkit.run(clock_and_sum, on=world).results))
import socket, ssl
from labkit.launch.cluster.hosts import hosts_of
about = hosts_of(world.client, world.options).hosts[1].about
plain = socket.create_connection(("10.77.0.2", about["port"]))
plain.sendall(bytes(64))
plain.settimeout(20)
try:
    print("PLAIN", plain.recv(100)[:1] in (b"", bytes([21])))
except ConnectionError:
    print("PLAIN", True)
context = ssl._create_unverified_context()
try:
    stranger = context.wrap_socket(socket.create_connection(("10.77.0.2", about["port"])))
    print("STRANGER", stranger.recv(100) == b"")
except (ssl.SSLError, ConnectionError):
    print("STRANGER", True)""",
        )
        .replace("insecure=True", security)
        .replace("import labkit\n", "import labkit, distributed\n", 1)
    )
    said = hosts.on_notebook(secured)
    assert json.loads(re.search(r"RESULTS (.*)", said)[1])[0][0] == 10.0
    assert "PLAIN True" in said
    assert "STRANGER True" in said
    assert "Dask and labkit's own connections are encrypted; what ranks send each other" in said


def test_two_levels_beat_one_ring_where_hosts_share_a_slow_link(tmp_path: Path) -> None:
    """A ring of 8 ranks on 2 hosts sends 2·7/8 of the buffer over each link, two levels 2·1/2: 1.75 times less."""
    why_not = words_why_not()
    if why_not:
        pytest.skip(why_not)
    lesson = load(Path(__file__).parents[3] / "solutions" / "03_collectives.py")
    cells = [cell.source for cell in lesson.cells if cell.role == "given" or cell.is_code_exercise]
    (tmp_path / "ring.py").write_text("\n\n\n".join(cells), encoding="utf-8")
    with Hosts(2, tmp_path, rate="200mbit") as hosts:
        address = hosts.start_dask()
        said = hosts.on_notebook(
            program(
                address,
                """def sent():
    import psutil
    return psutil.net_io_counters(pernic=True)["eth0"].bytes_sent
def raced():
    import ring
    found = {}
    for name, reduce in (("ring", ring.ring_sum), ("levels", lambda x: ring.hierarchical_all_reduce(x, 4))):
        found[name] = []
        for _ in range(3):
            x = torch.full((1 << 21,), float(dist.get_rank() + 1))
            dist.barrier()
            bytes_before, begin = sent(), time.monotonic()
            reduce(x)
            dist.barrier()
            seconds = time.monotonic() - begin
            assert x[0].item() == x[-1].item() == 36.0
            found[name].append((seconds, sent() - bytes_before))
    return found
run = labkit.run(raced, on=labkit.cluster(ADDRESS, ranks_per_host=4, insecure=True))
print("RACE", json.dumps(run.results[0]))""".replace("ADDRESS", repr(address)),
            )
        )
    race = json.loads(re.search(r"RACE (.*)", said)[1])
    seconds = {name: min(each[0] for each in found) for name, found in race.items()}
    sent = {name: min(each[1] for each in found) for name, found in race.items()}
    buffer = 4 << 21
    assert 1.75 * buffer < sent["ring"] < 1.95 * buffer, sent
    assert 1.0 * buffer < sent["levels"] < 1.15 * buffer, sent
    assert seconds["levels"] < seconds["ring"], seconds


def test_a_deadlock_across_hosts_is_explained_as_on_one(hosts: Hosts) -> None:
    address = hosts.start_dask()
    said = hosts.on_notebook(
        program(
            address,
            """def ring_of_receives():
    x = torch.ones(3)
    dist.recv(x, (dist.get_rank() + 1) % dist.get_world_size())
failing(ring_of_receives, world)
def other_rank_left():
    if dist.get_rank() != 3:
        dist.all_reduce(torch.ones(2))
failing(other_rank_left, world)
print("AFTER", labkit.run(os.getpid, on=world))""",
        )
    )
    first, second = (json.loads(each) for each in re.findall(r"^ERROR (.*)$", said, re.M))
    assert first[0] == second[0] == "RunTimeout"
    assert "rank 4 -> rank 5 -> rank 0." in first[1] and "each waits in recv from the next (12 B)" in first[1]
    assert "dist.recv(x, (dist.get_rank() + 1)" in first[1] or "in ring_of_receives" in first[1]
    assert "which rank 3 finished without" in second[1]
    assert "AFTER Run(6 ranks" in said
