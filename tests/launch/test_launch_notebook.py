"""What a learner does in a live kernel."""

from __future__ import annotations

import os
import signal
import textwrap

import psutil
import pytest
from live_kernel import Notebook, alive, wait_until

from tests.linux import forks


def cell(notebook: Notebook, code: str) -> str:
    """Return what a cell shows that must not fail."""
    reply = notebook.run(textwrap.dedent(code))
    assert reply.error is None, reply.error[2]
    return reply.text


@pytest.mark.in_turn
def test_functions_closures_and_classes_of_cells_run_on_ranks(notebook: Notebook) -> None:
    """Cells define, a later cell runs; arguments and results travel by value, tensors and instances included."""
    cells = [
        "import labkit, torch, torch.distributed as dist\nfrom dataclasses import dataclass",
        "@dataclass\nclass Message:\n    rank: int\n    value: torch.Tensor",
        "SCALE = 10\ndef scaled(x):\n    return x * SCALE",
        """def make(k):
    def work(message):
        total = message.value.clone()
        dist.all_reduce(total)
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, Message(dist.get_rank(), total))
        return Message(dist.get_rank(), scaled(total) + k), [m.rank for m in gathered]
    return work""",
        "run = labkit.run(make(1), Message(-1, torch.tensor([1.0, 2.0])), on=labkit.local(3))",
        """for rank, (message, ranks) in enumerate(run.results):
    assert isinstance(message, Message) and message.rank == rank and ranks == [0, 1, 2]
    assert message.value.tolist() == [31.0, 61.0]
assert run.timeline.num_ranks == 3
assert len(run.output) == 3
print(repr(run))""",
    ]
    shown = [cell(notebook, each) for each in cells]
    assert shown[-1].startswith("Run(3 ranks on gloo/cpu, ")


@pytest.mark.long
def test_a_redefined_class_is_the_one_that_runs_and_a_result_does_not_undo_it(notebook: Notebook) -> None:
    shown = cell(
        notebook,
        """
        class Net:
            def say(self): return helper()
        def helper(): return "first"
        net = labkit.run(lambda: Net(), on=labkit.local(1)).results[0]
        first = labkit.run(lambda: Net().say(), on=labkit.local(1)).results[0]
        def helper(): return "second"
        second = labkit.run(lambda: Net().say(), on=labkit.local(1)).results[0]
        here = Net().say()
        class Net:
            def say(self): return "third"
        third = labkit.run(lambda: Net().say(), on=labkit.local(1)).results[0]
        print(first, second, here, third, net.say())
        """,
    )
    assert shown.split() == ["first", "second", "second", "third", "second"]


def test_the_error_leads_with_the_ranks_own_traceback_in_the_notebooks_lines(notebook: Notebook) -> None:
    reply = notebook.run(
        "def broken():\n    if dist.get_rank() == 1:\n        raise ValueError('shapes differ')\n"
        "    dist.all_reduce(torch.ones(4))\n\nlabkit.run(broken, on=labkit.local(3))"
    )
    assert reply.error is not None
    name, message, shown = reply.error
    number = reply.number
    assert name == "RankFailed"
    lines = message.splitlines()
    assert lines[0] == "rank 1 of 3 failed first: ValueError: shapes differ"
    assert lines[3] == f"  Cell In[{number}], line 3, in broken"
    assert lines[4] == "    raise ValueError('shapes differ')"
    assert f"Cell In[{number}], line 4, in broken" in message, "the others stand in their all_reduce"
    assert "rank 0 waits in all_reduce #1 (16 B), which rank 1 has not reached" in message
    assert "labkit/launch" not in message, "none of our own frames"
    assert "labkit/" not in shown, "neither in what the notebook shows"
    assert shown.startswith(f"  Cell In[{number}], line 6, in <module>\n    labkit.run(broken"), (
        "the line that called run()"
    )


def test_code_of_cells_can_be_inspected_on_a_rank(notebook: Notebook) -> None:
    shown = cell(
        notebook,
        """
        import inspect
        def visible(x):
            return x + 1  # a line to find
        print(labkit.run(lambda: inspect.getsource(visible), on=labkit.local(1)).results[0])
        """,
    )
    assert "return x + 1  # a line to find" in shown


def test_output_appears_with_its_rank_while_ranks_run(notebook: Notebook, tmp_path: object) -> None:
    """Rank 0 goes on only when a file exists, which this test makes after it has seen the line."""
    flag = f"{tmp_path}/seen"
    began = notebook.start(
        textwrap.dedent(f"""
        def talk():
            print("before", dist.get_rank())
            while not os.path.exists({flag!r}):
                time.sleep(0.01)
            print("after")
        labkit.run(talk, on=labkit.local(2))
        """)
    )
    text = ""
    while "[rank 0] before 0" not in text or "[rank 1] before 1" not in text:
        message = notebook.client.get_iopub_msg(timeout=180)
        text += message["content"].get("text", "")
    assert "after" not in text
    open(flag, "w").close()
    reply = notebook.finish(began)
    assert "[rank 0] after" in reply.text and "[rank 1] after" in reply.text


LOADER = """
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): time.sleep(1000); return i
def load():
    if dist.get_rank() == 0:
        for batch in torch.utils.data.DataLoader(Slow(), num_workers=2): pass
    dist.barrier()
"""


@pytest.mark.in_turn
@forks
def test_interrupting_the_cell_leaves_no_process_and_a_usable_kernel(notebook: Notebook) -> None:
    cell(notebook, LOADER)
    zygote = {p.pid for p in notebook.processes()}
    began = notebook.start("labkit.run(load, on=labkit.local(3))")
    ranks = [p for p in notebook.wait_for_ranks(5) if p.pid not in zygote]
    assert len(ranks) == 5, "three ranks and two DataLoader workers"
    notebook.manager.interrupt_kernel()
    reply = notebook.finish(began)
    assert reply.error is not None and reply.error[0] == "KeyboardInterrupt"
    wait_until(lambda: not alive(ranks))
    assert cell(notebook, "print(labkit.run(dist.get_rank, on=labkit.local(2)).results)") == "[0, 1]\n"


@pytest.mark.parametrize("how", ["killed", "restarted"])
@pytest.mark.long
def test_when_the_kernel_ends_no_process_is_left(doomed_notebook: Notebook, how: str) -> None:
    notebook = doomed_notebook
    cell(notebook, LOADER)
    notebook.start("labkit.run(load, on=labkit.local(2))")
    below = notebook.wait_for_ranks(4)
    assert len(below) == 5, "zygote, two ranks, two DataLoader workers"
    if how == "killed":
        os.kill(notebook.pid, signal.SIGKILL)
    else:
        notebook.manager.restart_kernel(now=True)
    wait_until(lambda: not alive(below))


@forks
def test_what_a_rank_started_in_a_session_of_its_own_ends_with_the_run(notebook: Notebook) -> None:
    shown = cell(
        notebook,
        """
        import subprocess
        def start_daemon():
            return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid
        print(labkit.run(start_daemon, on=labkit.local(1)).results[0])
        """,
    )
    wait_until(lambda: not psutil.pid_exists(int(shown)))


@forks
def test_the_zygote_has_one_thread_and_never_loads_cuda(notebook: Notebook) -> None:
    (zygote,) = notebook.processes()
    assert zygote.num_threads() == 1
    assert not [m.path for m in zygote.memory_maps() if "libcuda.so" in m.path]


@pytest.mark.in_turn
@forks
def test_the_zygote_starts_when_worlds_is_imported_in_a_kernel() -> None:
    kernel = Notebook.__new__(Notebook)
    from jupyter_client.manager import KernelManager

    kernel.manager = KernelManager(kernel_name="python3")
    kernel.manager.start_kernel()
    kernel.client = kernel.manager.client()
    kernel.client.start_channels()
    kernel.client.wait_for_ready(180)
    kernel.pid = kernel.manager.provisioner.pid
    try:
        assert cell(kernel, "import labkit\nlabkit.local(2)\nimport sys\nprint('torch' in sys.modules)") == "False\n"
        assert len(kernel.processes()) == 1
    finally:
        kernel.stop()


@pytest.mark.in_turn
def test_two_runs_at_the_same_time_do_not_meet(notebook: Notebook) -> None:
    shown = cell(
        notebook,
        """
        from concurrent.futures import ThreadPoolExecutor
        def total(x):
            t = torch.tensor([float(x)])
            dist.all_reduce(t)
            return t.item()
        with ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(lambda x: labkit.run(total, x, on=labkit.local(2)), [1, 10, 100, 1000]))
        print([r.results for r in runs])
        """,
    )
    assert shown == "[[2.0, 2.0], [20.0, 20.0], [200.0, 200.0], [2000.0, 2000.0]]\n"


@pytest.mark.in_turn
def test_remote_procedure_calls_find_functions_of_the_notebook(notebook: Notebook) -> None:
    shown = cell(
        notebook,
        """
        import torch.distributed.rpc as rpc, warnings
        def remote_add(a, b): return a + b + 1
        def call():
            warnings.simplefilter("ignore")
            rank = int(os.environ["RANK"])
            rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
            value = rpc.rpc_sync("worker1", remote_add, args=(torch.ones(2), 1)).sum().item() if rank == 0 else None
            rpc.shutdown()
            return value
        print(labkit.run(call, on=labkit.local(2), init=False).results)
        """,
    )
    assert shown.endswith("[6.0, None]\n")
