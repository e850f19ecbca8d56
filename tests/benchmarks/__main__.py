"""Measure and print: python -m tests.benchmarks [--quick] [TOPIC ...]; `make bench` calls it.

Every figure stands beside a peer measured in the same sitting; a ratio means something on any machine, a time does not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

import torch

from tests.benchmarks.measured import publish

TOPICS = (
    "launch",
    "cluster",
    "ring",
    "ddp",
    "recording",
    "virtual",
    "audit",
    "pipeline",
    "ps",
    "tensor",
    "compression",
    "sharded",
    "truth",
    "literature",
    "published_steps",
    "planner",
    "grading",
    "review",
    "views",
)


def main() -> None:
    """Print a table and its bars for each topic, and write bench/TOPIC.json."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"any of {', '.join(TOPICS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="fewer repeats: a look, not a figure to quote")
    parser.add_argument("--publish", action="store_true", help="put the bars into docs/measured.md")
    asked = parser.parse_args()
    unknown = set(asked.topics) - set(TOPICS)
    if unknown:
        parser.error(f"no topic {', '.join(sorted(unknown))}; there are {', '.join(TOPICS)}")

    # Ended from outside, it ends what it started first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("benchmark ended by SIGTERM"))
    machine = {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_before": os.getloadavg()[0],
    }
    busy = f", and other work is running (load {machine['load_before']:.1f})" if os.getloadavg()[0] > 0.5 else ""
    sys.stdout.write(f"{machine['cores']} cores, Python {machine['python']}, torch {machine['torch']}{busy}\n")
    out = Path("bench")
    out.mkdir(exist_ok=True)
    num_missed = 0
    for topic in asked.topics or TOPICS:
        begin = time.monotonic()
        text, bars, figures = import_module(f"tests.benchmarks.{topic}").run(quick=asked.quick)
        sys.stdout.write("\n".join(["", text, *map(str, bars), f"  ({time.monotonic() - begin:.0f} s)", ""]))
        sys.stdout.flush()
        record = {"machine": machine, "quick": asked.quick, "bars": [bar.as_dict() for bar in bars], **figures}
        (out / f"{topic}.json").write_text(json.dumps(record, indent=2) + "\n")
        if asked.publish:
            publish(topic, record)
        num_missed += sum(bar.met is False for bar in bars)
    sys.stdout.write(f"\n{num_missed} bars missed; figures are in {out}/\n")


if __name__ == "__main__":
    main()
