"""Nothing by which a machine or a person could be found is in a report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.gpu_report.private import cleaned, without_names

NAMES = ("ada-lovelace", "analytical7.example.org", "analytical7")
SECRETS = (
    "ada-lovelace", "analytical7", "/data/ada-lovelace/course", "GPU-5c7e1a2b-0000-1111-2222-333344445555",
    "MIG-5c7e1a2b-0000-1111-2222-333344445555", "10.77.0.1", "fe80:0:0:0:1ff:fe23:4567:890a", "0a:1b:2c:3d:4e:5f",
    "SLURM_JOB_ACCOUNT=lovelace-lab",
)  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("sentence", ["{}", "it says: {}.", "'{}' (twice: {})", "a\n{}\nb", "x={};", '{{"at": "{}"}}'])
def test_no_name_path_address_or_serial_number_stays(secret: str, sentence: str) -> None:
    said = without_names(sentence.format(secret, secret), NAMES)
    hidden = secret.rpartition("=")[2] if "=" in secret else secret
    assert hidden not in said and "lovelace" not in said and "5c7e" not in said


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/data/ada/labkit/worlds.py", ".../worlds.py"),
        ("/opt/conda/lib/python3.12/site-packages/torch/distributed/c10d.py:2501", ".../c10d.py:2501"),
        (r"C:\Users\ada\course\02_ring.ipynb", ".../02_ring.ipynb"),
        ("~/secret/plan.txt", ".../plan.txt"),
        ("/data/ada", ".../ada"),
    ],
)
def test_of_a_path_only_the_files_name_stays(path: str, kept: str) -> None:
    assert without_names(f'File "{path}", line 3', ()) == f'File "{kept}", line 3'


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA H100 80GB HBM3", "torch 2.11.0+cu130, NCCL 2.28.9", "nccl/cuda", "gloo/cpu: 3", "127.0.0.1",
        "solutions/04_ddp.py:526: cell ddp raised RuntimeError: expected 3.0, got 4.0", "12/30 GB/s", "1e-3",
        "rank 0 waits in all_reduce #2 (16 B), which rank 1 has not reached", "x == 0.5 and y / z",
    ],
)  # fmt: skip
def test_what_a_report_is_about_stays(text: str) -> None:
    assert without_names(text, NAMES) == text


@pytest.mark.in_turn
@given(st.text(alphabet="ab/.:\\ -_0123456789", max_size=40))
def test_cleaning_twice_is_cleaning_once_for_folders(text: str) -> None:
    once = without_names(f"{text} /data/ada/x.py", ("ada",))
    assert "/data/" not in once and "ada" not in once


def test_plain_data_is_cleaned_to_its_depth_and_numbers_stay() -> None:
    data = {"a": [{"b": "at /data/ada-lovelace/x.py"}, 3, None, True], "c": ("10.77.0.1", 0.5)}
    assert cleaned(data) == {"a": [{"b": "at .../x.py"}, 3, None, True], "c": ["ADDRESS", 0.5]}


def test_the_names_of_this_machine_are_asked_for(tmp_path: Path) -> None:
    """In a process of its own whose host, user and home have names that stand out."""
    program = (
        "import socket; socket.gethostname = lambda: 'analytical7.example.org'\n"
        "from labkit.gpu_report.private import without_names\n"
        "print(without_names('ada-lovelace ran it on analytical7 for analytical7.example.org as hub-user9'))"
    )
    named = {"USER": "ada-lovelace", "LOGNAME": "ada-lovelace", "JUPYTERHUB_USER": "hub-user9", "HOME": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | named, capture_output=True, text=True, check=True
    ).stdout
    assert said == "NAME ran it on NAME for NAME as NAME\n"
