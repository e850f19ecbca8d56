"""`labkit plan` at the terminal: plans, tables, and what it says of bad input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labkit.cli import app

PUBLISHED = Path(__file__).parent / "nanotron_h100.csv"


def said(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["plan", *words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.in_turn
def test_plans_are_told_with_time_memory_and_reasons(tmp_path: Path) -> None:
    words = (
        "--model",
        "llama3-70b",
        "--gpus",
        "512",
        "--gpu",
        "h100",
        "--nic",
        "ib_400g",
        "--batch",
        "4M",
        "--seq",
        "8192",
    )
    told = said(*words, "--top", "3", "--json", str(tmp_path / "plan.json"), "--carry", "megatron")
    assert "512 sequences of 8192 tokens a step, 512 h100, ib_ndr" in told
    for words_of_it in (
        "MFU",
        "time: ",
        "memory: ",
        "slower: it adds",
        "With 141 GB a GPU",
        "--bf16",
        "fitted to nanotron",
    ):
        assert words_of_it in told
    plans = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert len(plans) == 3
    assert plans[0]["step_seconds"] <= plans[1]["step_seconds"]
    assert plans[0]["memory_bytes"]["total"] < 80e9


@pytest.mark.in_turn
def test_a_table_keeps_its_columns_and_gets_four(tmp_path: Path) -> None:
    said("--table", str(PUBLISHED), "--out", str(tmp_path / "predicted.csv"))
    with (tmp_path / "predicted.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1296
    assert list(rows[0])[-4:] == ["predicted_tokens_per_s", "predicted_memory_gb", "fits", "problem"]
    assert rows[0]["tokens_per_s"] == "321200"
    assert 0.9 < float(rows[0]["predicted_tokens_per_s"]) / 321200 < 1.1
    assert {row["fits"] for row in rows} == {"True", "False"}


def test_a_table_of_another_model_names_its_sizes(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(
        "layers,hidden,heads,intermediate,vocabulary,sequence,microbatch,grad_acc,dp,pp,tp,zero,recompute\n"
        "24,2048,16,8192,50368,2048,8,4,16,1,1,3,full\n",
        encoding="utf-8",
    )
    said("--table", str(table), "--gpu", "a100", "--nic", "ib_hdr", "--out", str(tmp_path / "out.csv"))
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert float(row["predicted_tokens_per_s"]) > 0


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "Name the model with --model"),
        (("--model", "llama3-8b"), "A plan needs --gpus"),
        (("--model", "llama9", "--gpus", "8"), "No model is called 'llama9'"),
        (("--model", "llama3-8b", "--gpus", "8", "--layers", "3"), "leave out --layers"),
        (("--layers", "3", "--gpus", "8"), "--hidden, --heads, --intermediate, --vocabulary and --seq is missing"),
        (("--model", "llama3-8b", "--gpus", "13"), "use 8 or 16"),
        (("--model", "llama3-8b", "--gpus", "8", "--batch", "5M"), "is 640 sequences"),
        (("--model", "llama3-8b", "--gpus", "8", "--batch", "1K"), "is 0.125 sequences of 8192 tokens"),
        (("--model", "llama3-8b", "--gpus", "8", "--batch", "lots"), "is neither tokens"),
        (("--model", "llama3-8b", "--gpus", "8", "--gpu", "h900"), "No device is called 'h900'"),
        (("--model", "llama3-8b", "--gpus", "8", "--oversubscription", "0.5"), "less than 1"),
        (
            ("--model", "llama3-8b", "--gpus", "8", "--carry", "tea"),
            "use mesh, torchtitan, torchtitan-main and megatron",
        ),
        (("--model", "llama3-405b", "--gpus", "16", "--batch", "16"), "GPUs would do"),
        (("--model", "llama3-70b", "--gpus", "7", "--batch", "16"), "No plan holds llama3-70b on 7 h100"),
        (("--model", "llama3-8b", "--gpus", "8", "--program", "tea"), "use nanotron and megatron"),
        (("--table", "nowhere.csv", "--out", "out.csv"), "nowhere.csv cannot be read as a table: no such file"),
        (("--table", str(PUBLISHED)), "--table needs --out"),
        (("--table", str(PUBLISHED), "--out", "/nowhere/out.csv"), "could not be written: no such file"),
        (("--model", "llama3-8b", "--gpus", "8", "--json", "/nowhere/p.json"), "could not be written to /nowhere"),
        (("--model", "llama3-8b", "--gpus", "296", "--batch", "7"), "A batch of 296 would do"),
    ],
)
def test_bad_input_is_told_with_what_would_do(words: tuple[str, ...], answer: str) -> None:
    if answer == "is 640 sequences":
        assert "640 sequences" in said(*words)
        return
    assert answer in " ".join(said(*words, code=2).split())


_ROWS = {
    "1B,1,1,8,1,1,0,,,,": "",
    "9B,1,1,8,1,1,0,,,,": "no model is called '9B'",
    "1B,x,1,8,1,1,0,,,,": "microbatch is 'x', not a whole number",
    "1B,nan,1,8,1,1,0,,,,": "microbatch is 'nan', not a whole number",
    "1B,1,1,8,1,1,7,,,,": "zero is 7",
    "1B,0,1,8,1,1,0,,,,": "at least 1",
    "1B,1,1,8,1": "tp is '', not a whole number",
    "1B,1,1,8,1,1,3,selective,,,": "recompute is 'selective'",
    "1B,1,1,8,1,1,3,,2,,": "expert parallelism is not planned for",
    "1B,1,1,8,1,1,3,,,fp8,": "only products of 16 bits",
    "1B,1,1,8,1,1,3,,,bf16,True": "a compiled program is not planned for",
    "8B,1,8,1,4,2,0,full,1,BF16,False": "",
}


def test_a_row_that_cannot_be_predicted_says_why_and_the_others_are(tmp_path: Path) -> None:
    table, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    head = "Model,Microbatch,GRAD_ACC,dp,pp,tp,ZeRO,recompute,ep,precision,compile"
    table.write_text("\n".join([head, *_ROWS, ""]), encoding="utf-8")
    told = " ".join(said("--table", str(table), "--out", str(out)).split())
    assert f"2 of {len(_ROWS)} rows predicted" in told
    assert "line 3: no model is called '9B'" in told
    assert "and 7 more" in told
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row, problem in zip(rows, _ROWS.values(), strict=True):
        assert problem in row["problem"]
        assert bool(row["predicted_tokens_per_s"]) == bool(row["fits"]) == (not problem)


@pytest.mark.in_turn
def test_a_table_of_which_nothing_can_be_predicted_is_refused(tmp_path: Path) -> None:
    table, head = tmp_path / "runs.csv", "model,microbatch,grad_acc,dp,pp,tp,zero\n"
    for text, answer in (
        ("", "it is empty"),
        (head, "has a first line and no rows"),
        ("model,dp\n1B,8\n", "lacks the columns microbatch, grad_acc, pp, tp and zero"),
        (head + "9B,1,1,8,1,1,0\n", "Line 2: no model is called '9B'"),
    ):
        table.write_text(text, encoding="utf-8")
        assert answer in " ".join(said("--table", str(table), "--out", str(tmp_path / "o.csv"), code=2).split())


def test_chunks_make_the_bubble_shorter_and_hold_more(tmp_path: Path) -> None:
    table, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    row = "llama3-70b,1,32,8,4,8,1"
    table.write_text(
        f"model,microbatch,grad_acc,dp,pp,tp,zero,chunks\n{row},1\n{row},5\n{row.replace('32', '30')},5\n",
        encoding="utf-8",
    )
    said("--table", str(table), "--out", str(out))
    with out.open(newline="", encoding="utf-8") as file:
        plain, chunked, odd = csv.DictReader(file)
    assert float(plain["predicted_tokens_per_s"]) < float(chunked["predicted_tokens_per_s"])
    assert float(plain["predicted_memory_gb"]) < float(chunked["predicted_memory_gb"])
    assert odd["problem"]


def test_a_row_says_what_program_ran_and_its_name_whether_the_mlp_has_a_gate(tmp_path: Path) -> None:
    table, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    sizes = "96,12288,96,49152,51200,2048,1,64,1,8,8,0"
    table.write_text(
        "model,layers,hidden,heads,intermediate,vocabulary,sequence,microbatch,grad_acc,dp,pp,tp,zero,gated,program,vpp\n"
        + "\n".join(
            [f"175B,{sizes},,,", f"175B,{sizes},false,megatron,1", f"175B,{sizes},true,,", f"x,{sizes},,,",
             f"175B,{sizes},,nanotron,", f"175B,{sizes},,tea,", f"175B,{sizes},,,6"]
        ),
        encoding="utf-8",
    )  # fmt: skip
    said("--table", str(table), "--gpu", "a100", "--out", str(out))
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rates = [row["predicted_tokens_per_s"] for row in rows]
    assert rates[0] == rates[1] != rates[2] == rates[3]
    assert float(rates[4]) < float(rates[0]) < float(rates[6])
    assert "no program is called 'tea'; use nanotron and megatron" in rows[5]["problem"]
