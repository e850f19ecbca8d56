"""``labkit plan``: which way to split a training step over GPUs, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from labkit.errors import ConfigError
from labkit.hardware import find_device, find_link
from labkit.planner.carry_over import as_device_mesh, as_megatron, as_torchtitan, as_torchtitan_main
from labkit.planner.costs import PROGRAMS, costs_of
from labkit.planner.layout import RECOMPUTE
from labkit.planner.model import Model, find_model, with_sequence
from labkit.planner.plan import Job, Plan, best_plans
from labkit.planner.reasons import what_it_holds, what_would_change_it, where_it_goes, why_it_loses
from labkit.planner.step import Machines
from labkit.planner.table import predict_table
from labkit.units import format_bytes, format_percent, format_time
from labkit.words import join, plainly

app = typer.Typer()
_PANEL = "Learn"
_SIZES = ("layers", "hidden", "heads", "intermediate", "vocabulary")
_BATCH = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KM]?)")
_CARRIED: dict[str, Callable[[Plan], str]] = {
    "mesh": as_device_mesh, "torchtitan": as_torchtitan, "torchtitan-main": as_torchtitan_main, "megatron": as_megatron,
}  # fmt: skip


@app.command(
    rich_help_panel=_PANEL,
    epilog="Example: labkit plan --model llama3-70b --gpus 512 --gpu h100 --nic ib_ndr --batch 4M --seq 8192",
)
def plan(
    model: Annotated[
        str | None, typer.Option(help="A model's name, such as llama3-70b, or a Hugging Face config.json.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="How many GPUs.")] = None,
    gpu: Annotated[str, typer.Option(help="Which: a100, h100, h200, b200, mi300x, ...")] = "h100",
    nic: Annotated[str, typer.Option(help="What connects the nodes, one port a GPU, such as ib_ndr.")] = "ib_ndr",
    link: Annotated[str | None, typer.Option(help="What connects the GPUs of a node (default: the GPU's own).")] = None,
    node_size: Annotated[int, typer.Option(help="GPUs of a node.")] = 8,
    oversubscription: Annotated[
        float, typer.Option(help="How many times the nodes' ports exceed what the network's core carries.")
    ] = 1.0,
    batch: Annotated[
        str, typer.Option(help="What a step takes: tokens with K or M (1024 of them, or 1024 squared), or sequences.")
    ] = "4M",
    seq: Annotated[int | None, typer.Option(help="Tokens of a sequence (default: the model's).")] = None,
    layers: Annotated[int | None, typer.Option(help="Sizes of a model that has no name.")] = None,
    hidden: Annotated[int | None, typer.Option()] = None,
    heads: Annotated[int | None, typer.Option()] = None,
    kv_heads: Annotated[int | None, typer.Option()] = None,
    intermediate: Annotated[int | None, typer.Option()] = None,
    vocabulary: Annotated[int | None, typer.Option()] = None,
    zero: Annotated[list[int] | None, typer.Option(help="Stages of ZeRO that may be used (default: all).")] = None,
    recompute: Annotated[str | None, typer.Option(help="none or full (default: either).")] = None,
    program: Annotated[
        str,
        typer.Option(help=f"What trains: {join(PROGRAMS)} (default: nanotron for its models, megatron for others)."),
    ] = "",
    top: Annotated[int, typer.Option(min=1, help="How many plans to show.")] = 3,
    verify: Annotated[
        int, typer.Option(min=0, help="Run a step of this many of the best plans on the virtual cluster.")
    ] = 0,
    carry: Annotated[str | None, typer.Option(help=f"Print the best plan for {join(_CARRIED)}.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write the plans to this file.")] = None,
    table: Annotated[Path | None, typer.Option(help="Predict each row of this table of runs instead.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the predicted table goes.")] = None,
) -> None:
    """Say how to split a training step over GPUs, how long it will take, and why the next best plan loses."""
    if oversubscription < 1:
        raise ConfigError(f"--oversubscription {oversubscription} is less than 1, a network with bandwidth to spare.")
    if node_size < 1:
        raise ConfigError(f"--node-size {node_size}: a node has at least 1 GPU.")
    device = find_device(gpu)
    machines = Machines(device, find_link(link or device.native_link), find_link(nic), node_size, oversubscription)
    if table is not None:
        if out is None:
            raise ConfigError("--table needs --out, the file that the predicted table goes to.")
        done = predict_table(table, out, machines, program)
        typer.echo(f"{done.num_rows - len(done.left_out)} of {done.num_rows} rows predicted: {out}")
        for line, problem in done.left_out[:3]:
            typer.echo(f"line {line}: {problem}")
        if len(done.left_out) > 3:
            typer.echo(f"and {len(done.left_out) - 3} more: the column `problem` says why.")
        return
    if carry is not None and carry not in _CARRIED:
        raise ConfigError(f"--carry {carry} is not known; use {join(_CARRIED)}.")
    if recompute is not None and recompute not in RECOMPUTE:
        raise ConfigError(f"--recompute {recompute} is not known; use {join(RECOMPUTE)}.")
    sizes = dict(zip(_SIZES, (layers, hidden, heads, intermediate, vocabulary), strict=True))
    chosen = with_sequence(_described(model, sizes, kv_heads, seq), seq)
    if gpus is None:
        raise ConfigError("A plan needs --gpus, how many GPUs there are.")
    job = Job(chosen, gpus, _sequences(batch, chosen.sequence), machines, costs_of(chosen.name, program))
    again = (recompute,) if recompute else RECOMPUTE
    plans = best_plans(job, max(top, verify), zeros=tuple(zero) if zero else (0, 1, 2, 3), recomputes=again)
    for said in _told(plans[:top]):
        typer.echo(said)
    if verify:
        _verified(plans[:verify])
    if carry is not None:
        typer.echo("\n" + _CARRIED[carry](plans[0]))
    if as_json is not None:
        try:
            as_json.write_text(json.dumps([_as_data(each) for each in plans], indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"The plans could not be written to {as_json}: {plainly(error)}.") from None
        typer.echo(f"Written to {as_json}.")


def _described(name: str | None, sizes: dict[str, int | None], kv_heads: int | None, seq: int | None) -> Model:
    given = {key: value for key, value in sizes.items() if value is not None}
    if name is not None:
        if given:
            raise ConfigError(f"--model {name} has sizes of its own; leave out {join('--' + key for key in given)}.")
        return find_model(name)
    lacking = [f"--{key}" for key, value in sizes.items() if value is None] + ([] if seq else ["--seq"])
    if lacking:
        raise ConfigError(f"Name the model with --model, or describe it: {join(lacking)} is missing.")
    layers, hidden, heads, intermediate, vocabulary = (given[key] for key in _SIZES)
    return Model("the model", layers, hidden, heads, kv_heads or heads, intermediate, vocabulary, seq or 1)


def _sequences(text: str, sequence: int) -> int:
    match = _BATCH.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"--batch {text} is neither tokens, such as 4M, nor a number of sequences, such as 512.")
    amount, unit = float(match[1]), match[2]
    count = amount * {"K": 2**10, "M": 2**20}[unit] / sequence if unit else amount
    if count < 1 or count != int(count):
        raise ConfigError(
            f"--batch {text} is {count:g} sequences of {sequence} tokens; use a whole number, such as --batch "
            f"{max(1, round(count))}."
        )
    return int(count)


def _told(plans: list[Plan]) -> list[str]:
    best = plans[0]
    job, machines = best.job, best.job.machines
    lines = [
        f"{job.model.name}: {job.model.parameters / 1e9:.3g} B parameters, {job.batch} sequences of "
        f"{job.model.sequence} tokens a step, {job.num_gpus} {machines.device.name}, {machines.nic.name}",
        "",
    ]
    for number, each in enumerate(plans, start=1):
        lines.append(f"{number}. {each.layout}")
        lines.append(
            f"   {format_time(each.seconds * 1e9)} a step, {each.tokens_per_second:,.0f} tokens/s, "
            f"MFU {format_percent(each.model_flop_utilisation, 1)}, {format_bytes(each.memory.total)} of "
            f"{format_bytes(machines.device.memory_bytes)}"
        )
        if each is best:
            lines.append(f"   time: {where_it_goes(each)}")
            lines.append(f"   memory: {what_it_holds(each)}")
        else:
            lines.append(f"   {why_it_loses(each, best)}")
    changes = what_would_change_it(best)
    if changes:
        lines += ["", *changes]
    known = [f"{machines.device.name}: {machines.device.source}", f"{machines.link.name}: {machines.link.source}"]
    if job.num_gpus > machines.node_size:
        known.append(f"{machines.nic.name}: {machines.nic.source}")
    lines += ["", *(f"{each}." for each in known), f"Costs beyond datasheets: {job.costs.source}."]
    return lines


def _verified(plans: list[Plan]) -> None:
    """Run a step of each plan on the virtual cluster, and say how far off the model was."""
    from labkit.planned_steps.verify import faster_than_planned, verify  # imports torch

    typer.echo("\nOn the virtual cluster, whose program is not nanotron and costs less:")
    done = []
    for number, each in enumerate(plans, start=1):
        done.append(verify(each))
        for place, line in enumerate(done[-1].lines()):
            typer.echo(f"{number}. {line}" if place == 0 else f"   {line}")
    typer.echo(faster_than_planned(done))


def _as_data(each: Plan) -> dict[str, Any]:
    return {
        "layout": asdict(each.layout),
        "step_seconds": each.seconds,
        "tokens_per_second": each.tokens_per_second,
        "model_flop_utilisation": each.model_flop_utilisation,
        "seconds": asdict(each.time),
        "memory_bytes": {**asdict(each.memory), "total": each.memory.total},
    }
