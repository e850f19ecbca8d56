"""Wrong answers to exact_resume, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from labkit.checks.wrong_answers import WrongAnswers

WRONG = WrongAnswers()
changed = WRONG.changed

LOADED = '    for name in ("model", "optimizer", "schedule", "scaler"):\n'


def without(name: str, mistake: str, line: str) -> None:
    changed(name, mistake, (line, ""))


changed("no weights", "weights forgotten", (LOADED, LOADED.replace('"model", ', "")))
changed("no optimizer", "optimizer forgotten", (LOADED, LOADED.replace('"optimizer", ', "")))
GROUPS = '    state["optimizer"]["param_groups"] = run.optimizer.state_dict()["param_groups"]\n'
changed("its state alone", "learning rate not restored", (LOADED, GROUPS + LOADED))
changed("no schedule", "schedule forgotten", (LOADED, LOADED.replace('"schedule", ', "")))
changed("weights alone", "no schedule and no optimizer", (LOADED, LOADED.replace('"optimizer", "schedule", ', "")))
changed("no scaler", "loss scale forgotten", (LOADED, LOADED.replace(', "scaler"', "")))
without("no position", "sampler from 0", '    run.sampler.position = state["position"]\n')
changed("no sampler", "sampler from 0", ('    run.sampler.position = state["position"]\n', ""),
        ('    run.sampler.order = state["order"]\n', ""),
        ('    run.sampler.generator.set_state(state["generator"])\n', ""))  # fmt: skip
without("no order", "the order of the epoch", '    run.sampler.order = state["order"]\n')
without("no generator", "the next epoch's order", '    run.sampler.generator.set_state(state["generator"])\n')
SAMPLER = """    run.sampler.order = state["order"]
    run.sampler.position = state["position"]
    run.sampler.generator.set_state(state["generator"])
"""
changed("batches drawn again", "an order of the new run's seed",
        (SAMPLER, '    for _ in range(state["step"]):\n        run.sampler.next_batch()\n'))  # fmt: skip
changed("only how far it was", "an order of the new run's seed",
        (SAMPLER, '    run.sampler.position = state["position"]\n'))  # fmt: skip
for name, seed, mistake in (
    ("all steps again, of seed 0", "run.__init__(0)", "the steps of seed 0 done again"),
    ("all steps again", "pass", "an order of the new run's seed"),
):
    WRONG.wrong(name, mistake, f"""def state_of(run):
    return {{"steps": run.step}}


def restore(run, state):
    {seed}
    for _ in range(state["steps"]):
        run.train_step()
""")  # fmt: skip
without("no setstate", "Python's random numbers", '    random.setstate(state["python"])\n')
without("no set_rng_state", "torch's random numbers", '    torch.set_rng_state(state["torch"])\n')
without("no step", "step count", '    run.step = state["step"]\n')
changed("no copy", "live tensors", ("copy.deepcopy(", "("))
changed(
    "copies the model alone",
    "live tensors",
    ("copy.deepcopy(state)", "{**copy.deepcopy(state), 'optimizer': state['optimizer']}"),
)
changed("halves", "rounded", ("run.model.state_dict()", "{k: v.float() for k, v in run.model.state_dict().items()}"))
changed("the object itself", "cannot be read back", ("run.schedule.state_dict()", "run.schedule"))
WRONG.right(
    "part by part",
    """def state_of(run):
    import io

    file = io.BytesIO()
    torch.save(
        [run.model.state_dict(), run.optimizer.state_dict(), run.schedule.state_dict(), run.scaler.state_dict()], file
    )
    return {
        "parts": file.getvalue(),
        "sampler": (run.sampler.generator.get_state(), run.sampler.order.clone(), run.sampler.position),
        "random": [torch.get_rng_state(), random.getstate()],
        "step": run.step,
    }


def restore(run, state):
    import io

    model, optimizer, schedule, scaler = torch.load(io.BytesIO(state["parts"]))
    run.model.load_state_dict(model)
    run.optimizer.load_state_dict(optimizer)
    run.schedule.load_state_dict(schedule)
    run.scaler.load_state_dict(scaler)
    generator, run.sampler.order, run.sampler.position = state["sampler"]
    run.sampler.generator.set_state(generator)
    torch.set_rng_state(state["random"][0])
    random.setstate(state["random"][1])
    run.step = state["step"]
""",
)
changed("counts one more", "step count", ('run.step = state["step"]', 'run.step = state["step"] + 1'))
changed(
    "seeds torch by the step", "random numbers seeded anew",
    ('torch.set_rng_state(state["torch"])', 'torch.manual_seed(state["step"])'),
)  # fmt: skip
changed(
    "keeps torch's seed", "random numbers seeded anew",
    ('torch.set_rng_state(state["torch"])', 'torch.manual_seed(state["torch"])'),
    ("torch.get_rng_state()", "torch.initial_seed()"),
)  # fmt: skip
changed(
    "seeds Python by the step", "random numbers seeded anew",
    ('random.setstate(state["python"])', 'random.seed(state["step"])'),
)  # fmt: skip
changed(
    "the sampler's seed", "the next epoch's order",
    ("run.sampler.generator.get_state()", "run.sampler.generator.initial_seed()"),
    ('run.sampler.generator.set_state(state["generator"])', 'run.sampler.generator.manual_seed(state["generator"])'),
)  # fmt: skip
changed(
    "asks for a seed, and sets one", "the run itself changed",
    ("torch.get_rng_state()", "torch.seed()"),
    ('torch.set_rng_state(state["torch"])', 'torch.manual_seed(state["torch"])'),
)  # fmt: skip
changed("takes the next batch", "the run itself changed",
        ('"step": run.step,', '"next": run.sampler.next_batch(), "step": run.step,'))  # fmt: skip
changed("turns dropout off", "the run itself changed", ("    state |= {\n", "    run.model.eval()\n    state |= {\n"))
changed("the order as a list", "order is no tensor",
        ('"order": run.sampler.order,', '"order": run.sampler.order.tolist(),'))  # fmt: skip
changed("what is left of the order", "the rest of the order",
        ('"order": run.sampler.order,', '"order": run.sampler.order[run.sampler.position :],'))  # fmt: skip
