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


def test_a_table_keeps_its_columns_and_gets_three(tmp_path: Path) -> None:
    said("--table", str(PUBLISHED), "--out", str(tmp_path / "predicted.csv"))
    with (tmp_path / "predicted.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1296
    assert list(rows[0])[-3:] == ["predicted_tokens_per_s", "predicted_memory_gb", "fits"]
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
        (("--model", "llama3-8b", "--gpus", "8", "--carry", "tea"), "use mesh, torchtitan and megatron"),
        (("--model", "llama3-405b", "--gpus", "16", "--batch", "16"), "GPUs would do"),
        (("--table", "nowhere.csv", "--out", "out.csv"), "nowhere.csv cannot be read as a table: no such file"),
        (("--table", str(PUBLISHED)), "--table needs --out"),
    ],
)
def test_bad_input_is_told_with_what_would_do(words: tuple[str, ...], answer: str) -> None:
    if answer == "is 640 sequences":
        assert "640 sequences" in said(*words)
        return
    assert answer in " ".join(said(*words, code=2).split())


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("1B,1,1,1,8,1,1,0", "line 2"),
        ("9B,1,1,1,8,1,1,0", "no model is called '9B'"),
        ("1B,x,1,1,8,1,1,0", "microbatch is 'x', not a whole number"),
        ("1B,nan,1,1,8,1,1,0", "microbatch is 'nan', not a whole number"),
        ("1B,1,1,1,8,1,1,7", "zero is 7"),
        ("1B,0,1,1,8,1,1,0", "at least 1"),
    ],
)
def test_a_row_that_describes_no_run_is_named(tmp_path: Path, line: str, answer: str) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(f"model,microbatch,grad_acc,nodes,dp,pp,tp,zero\n{line}\n", encoding="utf-8")
    words = ("--table", str(table), "--out", str(tmp_path / "out.csv"))
    if answer == "line 2":
        said(*words)
        return
    told = " ".join(said(*words, code=2).split())
    assert "line 2" in told
    assert answer in told
