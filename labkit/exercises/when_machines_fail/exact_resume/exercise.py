"""A resume after which the run is the same, bit for bit."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch

from labkit.checks.case import Case, Failure, Values
from labkit.checks.compare import near
from labkit.checks.declared import Mistake, Result, declared, flag_result
from labkit.checks.draws import part_of
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes
from labkit.checks.values import integer
from labkit.checks.wire import Wire
from labkit.exercises.when_machines_fail.exact_resume.driver import drive, is_same, summary
from labkit.failures.training import BATCH, NUM_SAMPLES, Training

PARTS = ("model", "optimizer", "schedule", "scaler", "order", "position", "generator", "python", "torch", "step")


def resume_case(name: str, seed: int, before: int, after: int, *, apart: bool = False) -> Case:
    """Return a case of exact_resume: the state is taken after so many steps, and so many follow.

    Args:
        name: In words.
        seed: Of the run; where two ranks take part, each has its own from it.
        before: Steps until the state is taken.
        after: Steps that follow.
        apart: Whether another rank takes up the state, to which nothing but the file comes.
    """
    if not apart:
        return Case(name, 1, ({"seed": seed, "before": before, "after": after, "apart": False},))
    seeds = [part_of(seed, "rank", rank) % 2**31 for rank in range(2)]
    run: Values = {"seed": seeds[0], "before": before, "after": after, "apart": True}
    return Case(name, 2, (run, {**run, "seed": seeds[1], "before": -1}))


def _numbers(case: Case) -> tuple[int, int, int, int]:
    """Return the run's seed, the steps before and after, and the seed of the new run."""
    inputs = case.inputs[0]
    seed, others = integer(inputs, "seed"), [integer(each, "seed") for each in case.inputs[1:]]
    return seed, integer(inputs, "before"), integer(inputs, "after"), others[0] if others else seed + 1


@lru_cache(maxsize=256)
def _after(
    seed: int, before: int, after: int, other: int, forgotten: tuple[str, ...], live: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return what the steps after a resume are like that forgets these parts, or keeps live tensors of some."""
    randomness = random.getstate()
    with torch.random.fork_rng(devices=[]):
        run = Training(seed)
        for _ in range(before):
            run.train_step()
        refers = _state(run)
        state = {part: each if part in live else copy.deepcopy(each) for part, each in refers.items()}
        if live:
            for _ in range(after):
                run.train_step()
        resumed = Training(other)
        _restore(resumed, copy.deepcopy(state), forgotten)
        resumed.seen.clear()
        for _ in range(after):
            resumed.train_step()
    random.setstate(randomness)
    return summary(resumed)


@lru_cache(maxsize=64)
def _samples_of_run_0(before: int, after: int) -> list[Any]:
    """Return the samples after a resume that does the steps of seed 0 again, whatever the run's seed was."""
    randomness = random.getstate()
    with torch.random.fork_rng(devices=[]):
        run = Training(0)
        for _ in range(before + after):
            run.train_step()
    random.setstate(randomness)
    return [each["samples"] for each in run.seen[before:]]


def _state(run: Training) -> dict[str, Any]:
    sampler = run.sampler
    return {
        "model": run.model.state_dict(), "optimizer": run.optimizer.state_dict(), "schedule": run.schedule.state_dict(),
        "scaler": run.scaler.state_dict(), "order": sampler.order, "position": sampler.position,
        "generator": sampler.generator.get_state(), "python": random.getstate(), "torch": torch.get_rng_state(),
        "step": run.step, "initial": torch.initial_seed(),
        "generator seed": sampler.generator.initial_seed(),
    }  # fmt: skip


def _restore(run: Training, state: dict[str, Any], forgotten: tuple[str, ...]) -> None:
    def have(part: str) -> bool:
        return part not in forgotten

    for part in ("model", "schedule", "scaler"):
        if have(part):
            getattr(run, part).load_state_dict(state[part])
    if have("optimizer"):
        if not have("rate"):
            state["optimizer"]["param_groups"] = run.optimizer.state_dict()["param_groups"]
        run.optimizer.load_state_dict(state["optimizer"])
    run.sampler.order = state["order"] if have("order") else run.sampler.order
    run.sampler.position = state["position"] if have("position") else run.sampler.position
    if have("generator"):
        run.sampler.generator.set_state(state["generator"])
    if "drawn again" in forgotten:
        for _ in range(state["step"]):
            run.sampler.next_batch()
    if "redrawn" in forgotten:
        run.sampler.order = torch.randperm(NUM_SAMPLES, generator=run.sampler.generator)
    if have("python"):
        random.setstate(state["python"])
    if have("torch"):
        torch.set_rng_state(state["torch"])
    for seeded, number in (("torch by step", state["step"]), ("torch by seed", state["initial"])):
        if seeded in forgotten:
            torch.manual_seed(number)
    if "generator by seed" in forgotten:
        run.sampler.generator.manual_seed(state["generator seed"])
    if "python by step" in forgotten:
        random.seed(state["step"])
    run.step = state["step"] if have("step") else run.step


def expected(case: Case) -> list[Values]:
    """Return what the steps of the run are like that was never interrupted."""
    right = _after(*_numbers(case), ())
    right = {**right, "changed": ""}
    return [{**right, "identical": True}] if case.world_size == 1 else [right, right]


def _same_bits(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that the rank which took up the state came near to the other, and not to the bit."""
    if case.world_size > 1 and not all(is_same(got[0][key], got[1][key]) for key in got[0] if key != "changed"):
        yield Finding("rounded", "The resumed run is close to the other, and not the same bit for bit.", rank=1)


def _least(case: Case) -> dict[int, Bytes]:
    """Return that the weights, at least, must travel."""
    if case.world_size == 1:
        return {}
    weights = _after(*_numbers(case), ())["weights"].nbytes
    return {0: Bytes(out=weights), 1: Bytes(into=weights)}


def _close(came: Any, wanted: Any) -> bool:
    return len(came) == len(wanted) and all(
        abs(a - b) <= 1e-9 * max(1.0, abs(b)) for a, b in zip(came, wanted, strict=True)
    )


def _way(key: str, *forgotten: str, live: tuple[str, ...] = ()) -> Any:
    def way(case: Case, rank: int) -> Any:
        return _after(*_numbers(case), tuple(forgotten), live)[key]

    return way


def _first(came: Any, wanted: Any) -> dict[str, Any]:
    place = next((n for n, (a, b) in enumerate(zip(came, wanted, strict=False)) if a != b), 0)
    return {"at": place + 1, "got": came[place], "wanted": wanted[place]}


def _first_loss(came: Any, wanted: Any) -> dict[str, Any]:
    """Return the first step whose loss is another, both losses as text."""
    apart = (came - wanted).abs() > 1e-9 * wanted.abs().max()
    place = int(apart.nonzero()[0]) if bool(apart.any()) else 0
    return {"at": place + 1, "got": f"{came[place].item():.6g}", "wanted": f"{wanted[place].item():.6g}"}


def _forgets(name: str, hint: str, keys: tuple[str, ...], *forgotten: str) -> Mistake:
    return Mistake(name, hint, {key: _way(key, *forgotten) for key in keys})


def _no_moments(case: Case, got: Any, wire: Wire) -> bool:
    """Return whether the first step after the resume used no moments of the steps before."""
    return not isinstance(got, Failure) and _begins_as(got, "moments", _way("moments", "optimizer")(case, 0))


def _no_rate(case: Case, got: Any, wire: Wire) -> bool:
    return not isinstance(got, Failure) and _begins_as(got, "rates", _way("rates", "rate")(case, 0))


def _begins_as(got: Any, key: str, way: list[float]) -> bool:
    came = got[-1][key]
    return isinstance(came, list) and bool(came) and _close(came[:1], way[:1])


def _run_changed(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    if changed := got[0]["changed"]:
        yield Finding(_CHANGED, f"state_of changed the run that it was given: {changed}.", rank=0)


def _short(case: Case, got: Any, wire: Wire) -> bool:
    """Return whether a batch has fewer samples than it should."""
    if isinstance(got, Failure) or not isinstance(got[-1].get("samples"), list):
        return False
    return any(isinstance(each, list) and len(each) < BATCH for each in got[-1]["samples"])


def _rounded(case: Case, got: Any, wire: Wire) -> bool:
    """Return whether the losses are almost right."""
    if isinstance(got, Failure):
        return False
    return bool(torch.allclose(got[-1]["losses"], _way("losses")(case, 0), rtol=1e-3, atol=1e-4))


_CHANGED = "the run itself changed"
_LIVE = (("model", "optimizer"), ("optimizer",), ("model",))
_PICKLING = ("UnpicklingError", "PicklingError")
_SAID = "Step {at} after the resume: {what} {got}, expected {wanted}."
EXERCISE = declared(
    id="exact_resume",
    functions=("state_of", "restore"),
    driver=drive,
    oracle=expected,
    looks=(
        _run_changed,
        Result("samples", _SAID.replace("{what}", "samples"), shown=_first),
        Result("step", "run.step is {got} in the end, expected {wanted}.", "step count"),
        Result("rates", _SAID.replace("{what}", "learning rate"), same=_close, shown=_first),
        Result("scales", _SAID.replace("{what}", "loss scale"), same=_close, shown=_first),
        Result("noise", _SAID.replace("{what}", "noise on the inputs"), "Python's random numbers", same=_close,
               shown=_first),
        Result("losses", _SAID.replace("{what}", "loss"), same=near, shown=_first_loss),
        Result("weights", "The losses are right, and the weights in the end are not.", same=near),
        flag_result("identical", "The resumed run is close to the other, and not the same bit for bit.", "rounded"),
        _same_bits,
    ),
    least=_least,
    mistakes=(
        _forgets("weights forgotten", "The model starts from new weights: load its state_dict.",
                 ("losses", "weights"), "model"),
        Mistake("optimizer forgotten",
                "optimizer.state_dict() holds AdamW's moments of each weight, and its learning rate. Without it the "
                "first steps go elsewhere.",
                {"weights": _way("weights", "optimizer")}, seen=_no_moments),
        Mistake("learning rate not restored",
                "The learning rate stands in optimizer.param_groups. Keep the whole optimizer.state_dict(), not its "
                "state alone.", {"weights": _way("weights", "rate")}, seen=_no_rate),
        _forgets("schedule forgotten", "The schedule counts steps, too. Without that it begins anew.",
                 ("rates",), "schedule"),
        Mistake("no schedule and no optimizer",
                "Neither the schedule's count nor the optimizer's moments came back: keep both state_dicts.",
                {"rates": _way("rates", "schedule", "optimizer")}),
        _forgets("loss scale forgotten", "The scaler has a state_dict: the scale, and how long it has been growing.",
                 ("scales",), "scaler"),
        Mistake("sampler from 0",
                "Samples of this epoch come again, and others never: keep the sampler's order and its position.",
                {"samples": (_way("samples", "position"), _way("samples", "order", "position"),
                             _way("samples", "order", "position", "generator"))}),
        Mistake("the order of the epoch", "The position is right, in another order: keep sampler.order, too.",
                {"samples": (_way("samples", "order"), _way("samples", "order", "redrawn"))}),
        Mistake("the next epoch's order",
                "This epoch is right, and the next one is shuffled otherwise: keep the state of sampler.generator.",
                {"samples": (_way("samples", "generator"), _way("samples", "generator by seed"))}),
        Mistake("an order of the new run's seed",
                "This is as far into the epoch as it was, in an order that the new run's own seed gave, and a resume "
                "knows no seed. Keep sampler.order, and the state of sampler.generator.",
                {"samples": (_way("samples", "order", "generator"),
                             _way("samples", "order", "position", "generator", "drawn again"))}),
        Mistake("the steps of seed 0 done again",
                "This is the run of seed 0. The one that was interrupted may have any other seed, and doing all steps "
                "again costs what the checkpoint should spare: bring back the state itself.",
                {"samples": lambda case, rank: _samples_of_run_0(*_numbers(case)[1:3])}),
        _forgets("Python's random numbers", "random.getstate() and random.setstate(): the noise comes from there.",
                 ("noise",), "python"),
        _forgets("torch's random numbers", "Dropout draws from torch.get_rng_state(). Keep it, and set it again.",
                 ("losses",), "torch"),
        Mistake("random numbers seeded anew",
                "A seed begins a sequence of random numbers, and the run was in the midst of one. Keep where it was: "
                "torch.get_rng_state(), random.getstate().",
                {"losses": (_way("losses", "torch by step"), _way("losses", "torch by seed")),
                 "noise": _way("noise", "python by step")}),
        _forgets("step count", "run.step is part of the state: restore sets it to what it was.", ("step",), "step"),
        Mistake("live tensors",
                "state_dict() returns the tensors themselves, and training goes on changing them while you write. "
                "Copy what you return: copy.deepcopy.",
                {"losses": tuple(_way("losses", live=each) for each in _LIVE),
                 "weights": tuple(_way("weights", live=each) for each in _LIVE)}),
        Mistake(_CHANGED,
                "state_of reads the run and leaves it as it is. torch.seed() sets a new seed, next_batch() takes a "
                "batch, eval() turns dropout off; torch.get_rng_state() only looks."),
        Mistake("order is no tensor", "sampler.order is a tensor of the whole epoch's samples: keep it as one.",
                says=("has no attribute 'tolist'",), certain=True),
        Mistake("the rest of the order",
                "sampler.position counts from the beginning of the epoch: keep the whole sampler.order, not what is "
                "left of it.", seen=_short),
        Mistake("rounded", "Something went through another precision: keep tensors as they are.", seen=_rounded),
        Mistake("cannot be read back",
                "torch.load reads tensors, numbers, texts, lists, tuples and dicts. Keep those, not objects.",
                seen=lambda case, got, wire: isinstance(got, Failure) and got.error in _PICKLING,
                certain=True),
    ),
    visible=(
        resume_case("in the middle of an epoch", 11, 2, 4),
        resume_case("at the end of an epoch", 12, 4, 3),
        resume_case("after an overflow", 13, 7, 4),
    ),
    distributed=False,
    hints=(
        "What in Training changes from step to step? Go through its attributes, and ask of each where it keeps it.",
        "model, optimizer, schedule and scaler have state_dict() and load_state_dict(). The sampler has an order, a "
        "position and a generator. Two sources of random numbers are nobody's attribute: torch's and Python's.",
        'copy.deepcopy({"model": run.model.state_dict(), ..., "generator": run.sampler.generator.get_state(), '
        '"python": random.getstate(), "torch": torch.get_rng_state(), "step": run.step}), and in restore the setters '
        "in turn: random.setstate, torch.set_rng_state, generator.set_state.",
    ),
)  # fmt: skip
