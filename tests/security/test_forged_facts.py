"""Facts that points rest on - a value, a message, an order, a wait, a count - and answers that forge them."""

from __future__ import annotations

import json

import pytest

from labkit.grading.grade import grade
from labkit.grading.sandbox import bubblewrap
from tests.submissions.making import ROOT, lesson_source

pytestmark = [
    pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}"),
    pytest.mark.long,
]

CLIENT = "import gc\ndef client():\n    return next(o for o in gc.get_objects() if type(o).__name__ == 'RelayClient')\n"
SUM_AS = (
    CLIENT
    + """
def _sum(tensor, kind, count=1):
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = tensor.contiguous().numpy().tobytes()
    header = {"group": f"0:{','.join(map(str, range(n)))}", "name": kind, "bytes": 0}
    parts = [mine] * (n if count else 1)
    number = client().post_collective(header, lambda: ([len(p) for p in parts], b"".join(parts), False))
    answer, start = client().wait(number), 0
    tensor.zero_()
    for size in answer.header["sizes"]:
        piece = bytearray(answer.payload[start:start + size])
        tensor += torch.frombuffer(piece, dtype=tensor.dtype).view(tensor.shape)
        start += size
"""
)
NAIVE = "def naive_all_reduce(tensor):\n    _sum(tensor, ...)\n"
FORGED = {
    # a value: what another rank was given
    ("naive_all_reduce", "recomputes-the-others-numbers"): """
def naive_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    own = torch.initial_seed()
    for seed in [*range(own - n, own + n), *range(3000)]:
        g = torch.Generator().manual_seed(seed % 2**63)
        drawn = [torch.randint(1, (999 if n <= 4 else 19999) + 1, tensor.shape, generator=g) for _ in range(n)]
        if any(torch.equal(each.to(tensor.dtype), tensor) for each in drawn):
            tensor.copy_(sum(each.to(tensor.dtype) for each in drawn))
            return
""",
    # a value: everybody's numbers go on where this rank's ended
    ("naive_all_reduce", "goes-on-with-its-own-generator"): """
def naive_all_reduce(tensor):
    others = dist.get_world_size() - 1
    tensor += sum(torch.randint(1, 1000, tensor.shape).to(tensor.dtype) for _ in range(others))
""",
    # a message: a collective of the library under another name
    ("naive_all_reduce", "all-reduce-called-a-barrier"): SUM_AS + NAIVE.replace("...", "'barrier', 0"),
    ("naive_all_reduce", "all-reduce-called-nothing"): SUM_AS + NAIVE.replace("...", "'none', 0"),
    ("naive_all_reduce", "all-to-all-by-hand"): SUM_AS + NAIVE.replace("...", "'all_to_all'"),
    # a count: whole tensors announced as chunks
    ("ring_sum", "announces-fewer-bytes"): CLIENT + """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(), dist.get_world_size()
    name, piece = f"0:{','.join(map(str, range(n)))}", tensor.clone()
    for _ in range(n - 1):
        about = {"group": name, "bytes": 4, "dtype": "float32", "tag": 0}
        data = piece.contiguous().numpy().tobytes()
        sent = client().post({"op": "send", "peer": (rank + 1) % n, **about}, lambda data=data: data)
        came = client().post({"op": "recv", "peer": (rank - 1) % n, **about})
        piece = torch.frombuffer(bytearray(client().wait(came).payload), dtype=tensor.dtype).view(tensor.shape)
        client().wait(sent)
        tensor += piece
""",
    # an order: a message is posted where it would be due, and filled later
    ("ring_sum", "posts-first-and-fills-later"): """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(), dist.get_world_size()
    total = torch.zeros_like(tensor)
    gathered = [torch.empty_like(tensor) for _ in range(n)]
    work = dist.all_gather(gathered, total, async_op=True)
    total.copy_(tensor)
    work.wait()
    tensor.copy_(sum(gathered))
""",
    # the verdict itself: what the driver brings, written by the answer
    ("naive_all_reduce", "writes-its-own-result"): """
import os, socket
from labkit.checks import wire_format
from labkit.grading.frames import write_frame
def naive_all_reduce(tensor):
    result = wire_format.encode({"base": tensor * dist.get_world_size(), "returned": "NoneType", "raised": ""})
    write_frame(socket.socket(fileno=os.dup(4)), {"failure": None, "cell_errors": [], "seconds": 0.0}, result)
    os._exit(0)
""",
}  # fmt: skip


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, str]]:
    folder = tmp_path_factory.mktemp("forged")
    pristine = (ROOT / "notebooks" / f"{lesson_source('02').stem}.ipynb").read_text(encoding="utf-8")
    for (exercise, name), source in FORGED.items():
        content = json.loads(pristine)
        for cell in content["cells"]:
            if "exercise" in cell["metadata"].get("tags", []) and cell["metadata"]["labkit"]["exercise"] == exercise:
                cell["source"] = "import torch, torch.distributed as dist\n" + source
        (folder / f"{name}.ipynb").write_text(json.dumps(content))
    report = grade([folder], "02", folder / "out", jobs=2, course=ROOT, points_only=True, progress=False)
    return {each.name: (each.score, (folder / "out" / each.name / "feedback.html").read_text()) for each in report}


@pytest.mark.parametrize(("exercise", "name"), list(FORGED), ids=[name for _, name in FORGED])
def test_a_forged_fact_earns_nothing(exercise: str, name: str, graded: dict[str, tuple[float, str]]) -> None:
    assert graded[name][0] == 0.0, exercise


def test_the_relay_says_what_it_counted(graded: dict[str, tuple[float, str]]) -> None:
    assert "passed bytes through a barrier" in graded["all-reduce-called-a-barrier"][1]
    assert "which is not a collective" in graded["all-reduce-called-nothing"][1]
    assert "dist.all_to_all was called" in graded["all-to-all-by-hand"][1]
    assert "not those that were announced" in graded["announces-fewer-bytes"][1]
    assert "wrote into a tensor that its all_gather was still reading" in graded["posts-first-and-fills-later"][1]
