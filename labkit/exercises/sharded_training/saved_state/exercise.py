"""A sharded optimizer's state, saved whole: it loads on another world size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.declared import Mistake, declared, either, flag_result
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import and_more
from labkit.checks.tensor_values import close
from labkit.checks.values import flag, integer
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.on_ranks import OPTIONS, grouped, kind_for, steps_of, values_of
from labkit.exercises.sharded_training.saved_state.driver import as_data, drive, take, trained_alone
from labkit.exercises.sharded_training.training import EVERYTHING, STEPS, keeps_its_share, num_trained, training_case

Saved = dict[str, Any]


def saving_case(name: str, seed: int, world_size: int, *, resume: int = 2, **options: Any) -> Case:
    """Return a case of saved_state; learning rates are halved before step 0, and twice more before the first step
    that follows the loading. See training_case for the options.

    Args:
        name: In words.
        seed: Draws it.
        world_size: Number of ranks.
        resume: Steps before the state is saved.
        options: Of the training.
    """
    case = training_case(
        name, seed, world_size, same_batch=True, num_steps=resume + 2, more={"resume": resume}, **options
    )
    for inputs in case.inputs:
        steps_of(inputs)[0]["slower"], steps_of(inputs)[resume]["slower"] = 1, 2
    return case


def _resume(case: Case) -> int:
    return integer(case.inputs[0], "resume")


def resumed(
    case: Case, rank: int = 0, *, state: bool = True, options: bool = True, later: bool = True, counters: bool = True
) -> list[dict[str, Tensor]]:
    """Return the parameters after each step that follows the loading.

    Args:
        case: What is trained.
        rank: Whose; all have the same.
        state: Whether state was loaded.
        options: Whether the groups' options were.
        later: Whether a rate that is set after loading counts.
        counters: Whether steps are counted on.
    """
    inputs = case.inputs[0]
    model, before = trained_alone(inputs, _resume(case))
    optimizer = kind_for(inputs)(grouped(model, flag(inputs, "groups")), **OPTIONS)
    plain = [dict(group) for group in optimizer.param_groups]
    optimizer.load_state_dict(before.state_dict())
    if not state:
        optimizer.state = {}
    for kept in optimizer.state.values():
        kept["step"] *= counters
    if not options:
        optimizer.param_groups = plain
    found = []
    for step in steps_of(inputs)[_resume(case) :]:
        take(optimizer, model, step if later else {**step, "slower": 0})
        found.append(cast(dict[str, Tensor], values_of(model)))
    return found


def expected(case: Case) -> list[Values]:
    """Return what one process saves before and at the end, and the parameters after each step between (the oracle)."""
    inputs = case.inputs[0]
    saved, again = (
        as_data(trained_alone(inputs, num)[1].state_dict()) for num in (_resume(case), len(steps_of(inputs)))
    )
    steps = cast(Any, resumed(case))
    return [
        {"saved": saved, "again": again, "steps": steps, "left_alone": True, "as_it_was": True} for _ in case.inputs
    ]


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: what moves an element in a step is on one rank."""
    return both_ways(range(case.world_size), len(steps_of(case.inputs[0])))


def _on_one_rank(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that rank 0 returns a state and others return none."""
    none = [rank for rank, values in enumerate(got) if values["saved"] is None]
    if none and 0 not in none:
        yield Finding(_ONE_RANK, f"Rank 0 returns a state, rank {none[0]} returns none.", rank=none[0])


def _before(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with what was saved first."""
    right = cast(dict[str, Saved], expected(case)[0])
    for rank, values in enumerate(got):
        yield from _of_saved(case, f"Rank {rank}", cast(Saved, values["saved"]), right["saved"])
    yield from _of_counters(got, right["again"])


def _after(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    right = cast(dict[str, Saved], expected(case)[0])
    for rank, values in enumerate(got):
        after = f"After loading and training rank {rank}"
        yield from _of_saved(case, after, cast(Saved, values["again"]), right["again"])


def _of_saved(case: Case, who: str, came: Saved, right: Saved) -> Iterator[Finding]:
    wanted, mine = right["state"], came["state"]
    numbers = [group["params"] for group in right["groups"]]
    if set(mine) != set(wanted) or [group["params"] for group in came["groups"]] != numbers:
        has = ", ".join(sorted(mine, key=lambda each: (len(each), each)))
        text = f"{who} saves state for the parameters {has or 'of no number'}."
        yield Finding(
            _NUMBERS if mine or who.endswith("Rank 0") else _ONE_RANK,
            text,
            f"{', '.join(wanted)}; groups {numbers}",
            has,
        )
    yield from sorted(_of_shapes(case, who, mine, wanted), key=lambda found: found.mistake != _SHARD)
    for number, kept in wanted.items():
        for name, whole in kept.items():
            if not close(mine[number][name], whole):
                yield Finding("", f"{who} saves wrong values in {name} of parameter {number}.")
    for at, (group, options) in enumerate(zip(came["groups"], right["groups"], strict=True)):
        for name in ("lr", "weight_decay"):
            if group[name] != options[name]:
                text = f"{who} saves {name} = {group[name]} for group {at}."
                yield Finding(_OPTIONS, text, str(options[name]), str(group[name]))


def _of_shapes(case: Case, who: str, mine: Saved, wanted: Saved) -> Iterator[Finding]:
    for number, kept in wanted.items():
        for name, whole in kept.items():
            found = mine[number].get(name)
            shape = tuple(found.shape) if isinstance(found, Tensor) else found
            if shape != tuple(whole.shape):
                text = f"Parameter {number} has shape {tuple(whole.shape)}; {who} saves its {name} as {shape}."
                if name == "step" and isinstance(found, float):
                    text = f"{who} saves step of parameter {number} as the number {found}, not as a tensor."
                    yield Finding(_NUMBER, text, "a tensor without dimensions", str(found))
                if name == "step":
                    text = f"{who} saves step of parameter {number} as {shape}, and it is one number."
                short = whole.numel() > 1 and shape == (-(-whole.numel() // case.world_size),)
                yield Finding(_COUNTER if name == "step" else _SHARD if short else _FLAT, text)


def _of_counters(got: tuple[Values, ...], right: Saved) -> Iterator[Finding]:
    """Yield a counter that has a shape, or counts other than the first rank's."""
    for rank, values in enumerate(got):
        for number, kept in right["state"].items():
            found, first = (cast(Saved, each["again"])["state"][number]["step"] for each in (values, got[0]))
            if found.dim() or found != first:
                text = f"Loaded, trained and saved again: parameter {number} has taken {found.tolist()} steps on rank "
                yield Finding(_COUNTER, f"{text}{rank}.", str(kept["step"].tolist()), str(found.tolist()), rank)


def _not_found(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether loading looked for a number that it does not know, or a group that was saved has no numbers."""
    if not isinstance(got, Failure) or got.error not in ("IndexError", "KeyError"):
        return False
    return "'params'" in got.message or "load_state_dict" in got.detail


def _loaded(case: Case, got: Got, wire: Wire, larger: bool) -> bool:
    """Return whether a step could not put together a shard and a state: a whole one, or one without padding."""
    if not isinstance(got, Failure) or "in step:" not in got.detail:
        return False
    if "doesn't match the broadcast shape" in got.message:  # one of the two is empty, or has a shape of its own
        return larger != ("[0]" in got.message)
    sizes = re.search(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", got.message)
    if sizes is None:
        return False
    state, shard, ranks = int(sizes[1]), int(sizes[2]), case.world_size
    wholes = [each for each in num_trained(case) if -(-each // ranks) == shard]
    return state in (wholes if larger else [each - (got.rank or 0) * shard for each in wholes])


def _of_another(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a shard met a state that is neither its parameter's whole one nor one without padding."""
    met = isinstance(got, Failure) and "must match the size of tensor b" in got.message and "in step:" in got.detail
    return met and not any(_loaded(case, got, wire, larger) for larger in (True, False))


_ONE_RANK, _NUMBERS, _SHARD, _FLAT, _OPTIONS, _COUNTER, _NUMBER = (
    "on one rank alone", "numbered otherwise", "a shard saved", "shape not restored", "options lost", "counter cut up",
    "a number for a tensor",
)  # fmt: skip

EXERCISE = declared(
    id="saved_state",
    functions=("SavedOptimizer",),
    driver=drive,
    oracle=expected,
    structure=and_more(expected, kept=0),
    least=least,
    looks=(
        _on_one_rank,
        _before,
        flag_result(
            "as_it_was", "load_state_dict on rank {rank} changes the dict that it is given.", "changed by loading"
        ),
        replace(STEPS, wrong="After step {step} since loading rank {rank} has wrong values in {names}."),
        flag_result(
            "left_alone", "Training after load_state_dict has changed the dict that rank {rank} loaded.",
            "shares what it loaded",
        ),
        _after,
        keeps_its_share(),
    ),
    mistakes=(
        Mistake(_NUMBERS,
                "Parameters are numbered in the order they were given, frozen ones too, over all groups; a parameter "
                'that has no state yet is left out of "state", but is still listed under "params".',
                seen=either(_not_found, _of_another), certain=True),
        Mistake(_ONE_RANK, "Every rank returns the whole state, not rank 0 alone: all of them have gathered it."),
        Mistake("state not loaded",
                "After loading, training continues as if there were no state. Put it into the inner optimizer's "
                "state, under the shard.", {"steps": partial(resumed, state=False)}),
        Mistake("counters begin anew",
                "What was loaded counts its steps from 0. \"step\" is loaded, too: Adam corrects its means by it.",
                {"steps": partial(resumed, counters=False)}),
        Mistake(_OPTIONS,
                "The groups' options belong to the state: a learning rate that a schedule has changed must be there "
                "after loading. Save them, and load them into param_groups.",
                {"steps": partial(resumed, options=False)}),
        Mistake("rates set later do not count",
                "A learning rate set in param_groups after loading changes nothing: torch's load_state_dict makes new "
                "groups in the inner optimizer. Change the groups in place, or set self.param_groups to the new ones.",
                {"steps": (partial(resumed, later=False), partial(resumed, later=False, options=False))}),
        Mistake(EVERYTHING, "Each rank has loaded the state of all elements. Give each its shards: shard_of.",
                seen=partial(_loaded, larger=True), certain=True),
        Mistake("loaded without padding",
                "What was loaded is smaller than the shard, which is padded. Cut it as parameters are cut: shard_of.",
                seen=partial(_loaded, larger=False), certain=True),
        Mistake("numbers for shards",
                "The optimizer's own groups list numbers where it needs shards. Either state_dict wrote them there: "
                'make new dicts, {**group, "params": numbers}. Or load_state_dict took them over: load all options but '
                '"params".', says=("'int' object has no attribute",), certain=True),
        Mistake(_SHARD,
                "This is one rank's shard, which means nothing on another number of ranks. Gather it: "
                "start_gather([shard], [whole])()."),
        Mistake(_FLAT,
                "What is saved has the parameter's own shape, without padding. start_gather fills a tensor of whatever "
                "shape you give it."),
        Mistake(_COUNTER,
                '"step" is the same on all ranks and is not a shard. A parameter without dimensions has the same shape '
                "as its step counter: tell them apart by name."),
        Mistake(_NUMBER,
                'Save what optimizer_cls keeps, and as it keeps it: "step" is a tensor, which another optimizer counts '
                "on in."),
        Mistake("changed by loading",
                "What is given to load_state_dict may be loaded again. Read it, and take nothing out of it."),
        Mistake("shares what it loaded",
                "The inner optimizer goes on counting in the very tensors that were loaded. Load copies."),
    ),
    visible=(
        saving_case("2 ranks, plain layers", 1351, 2, tied=False, frozen=False),
        saving_case("3 ranks, a shared weight and frozen layers", 1352, 3),
        saving_case("2 ranks, two groups", 1353, 2, groups=True),
        saving_case("4 ranks, a layer that no step before used", 1354, 4, spare=[2]),
    ),
    hints=(
        "What would one process save? Tensors in the parameters' shapes, under the parameters' numbers. A program "
        "that reads that does not care how many ranks there were.",
        "Remember in __init__ which parameters were given, frozen ones too. To save, take the shard of each "
        "parameter: what the inner optimizer keeps for it (its state[shard]) is gathered, except step. "
        "To load, cut it with shard_of; the groups' options are loaded, too.",
        "whole = torch.empty_like(parameter); start_gather([value], [whole])(); state[number][name] = whole. Back: "
        "inner.state[shard] = {name: value.clone() if name == 'step' else shard_of(value) ...}, and group.update(...) "
        "for each group, so that param_groups are still those that step() reads.",
    ),
)  # fmt: skip
