"""Layouts, times, memory and reasons of plans: rules that hold for every job."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from math import fsum, isclose
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import ConfigError
from labkit.hardware import DEVICES, LINKS
from labkit.planner.carry_over import as_device_mesh, as_megatron, as_torchtitan, as_torchtitan_main
from labkit.planner.layout import Layout, layouts, problem, stages
from labkit.planner.model import MODELS, Model, find_model
from labkit.planner.plan import Job, best_plans, every_plan, planned
from labkit.planner.reasons import what_it_holds, what_would_change_it, where_it_goes, why_it_loses
from labkit.planner.step import Machines

H100S = Machines(DEVICES["h100"], LINKS["nvlink4"], LINKS["ib_ndr"])
LLAMA = MODELS["llama3-8b"]
JOB = Job(LLAMA, 64, 512, H100S)


def test_parameters_of_named_models_are_the_published_ones() -> None:
    said = {
        "llama3-8b": 8.03e9,
        "llama3-70b": 70.6e9,
        "llama3-405b": 405.9e9,
        "llama2-7b": 6.74e9,
        "gpt3-175b": 174.6e9,
    }
    for name, parameters in said.items():
        assert isclose(MODELS[name].parameters, parameters, rel_tol=0.005), name


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(MODELS)), st.sampled_from([1, 2, 4, 8, 12, 16, 32]))
def test_stages_hold_every_layer_once_and_the_head_once(name: str, pipeline: int) -> None:
    model = MODELS[name]
    parts = stages(model, pipeline)
    assert len(parts) == pipeline
    assert sum(stage.layers for stage in parts) == model.layers
    assert sum(stage.last for stage in parts) == sum(stage.first for stage in parts) == 1
    if not any(stage.empty for stage in parts):
        held = fsum(stage.parameters(model, 1) for stage in parts)
        whole = (
            model.layers * model.layer_parameters + (1 if model.tied and pipeline == 1 else 2) * model.head_parameters
        )
        assert isclose(held, whole)


def test_even_stages_are_those_of_megatron_and_llama() -> None:
    def layers(name: str, pipeline: int) -> list[int]:
        return [stage.layers for stage in stages(MODELS[name], pipeline, even=True)]

    assert layers("megatron-530b", 35) == [3] * 35  # Narayanan et al. 2021, table 1
    assert layers("llama3-405b", 16) == [7, *[8] * 14, 7]  # arXiv 2407.21783, section 3.3.2
    assert layers("llama3-8b", 1) == [32]
    assert problem(LLAMA, Layout(1, 35, 1, 1, 1, even=True)) == "pipeline 35 leaves 1 stage empty (32 layers)"
    ends = [(stage.first, stage.last) for stage in stages(LLAMA, 3, even=True)]
    assert ends == [(True, False), (False, False), (False, True)]


def test_ranks_that_share_a_sequence_share_its_work_and_are_replicas_of_the_weights() -> None:
    long = replace(JOB, model=replace(LLAMA, sequence=131_072), batch=8)
    alone, shared = (planned(long, Layout(8 // context, 1, 8, 1, 1, 3, context=context)) for context in (1, 8))
    assert shared.layout.world_size == alone.layout.world_size == 64
    assert isclose(8 * shared.time.products, alone.time.products, rel_tol=0.05)
    assert 8 * shared.time.tensor > alone.time.tensor  # keys and values travel, too
    assert isclose(shared.memory.optimizer, alone.memory.optimizer)
    assert isclose(8 * shared.memory.activations, alone.memory.activations)


def test_layouts_divide_what_they_split() -> None:
    found = layouts(LLAMA, 64, 512)
    assert len(set(found)) == len(found)
    for layout in found:
        assert layout.world_size == 64
        assert layout.batch == 512
        assert LLAMA.heads % layout.tensor == 0
        assert not problem(LLAMA, layout)
        assert layout.zero < 2 or layout.pipeline == 1
    by_hand = {(data, pipe, tensor) for data in range(1, 65) for pipe in range(1, 33) for tensor in (1, 2, 4, 8)}
    wanted = {(d, p, t) for d, p, t in by_hand if d * p * t == 64 and not problem(LLAMA, Layout(d, p, t, 1, 512 // d))}
    assert {(layout.data, layout.pipeline, layout.tensor) for layout in found} == wanted


def test_the_best_plan_is_the_fastest_of_all_that_fit() -> None:
    fitting = [plan for plan in every_plan(JOB) if plan.fits]
    best = best_plans(JOB, 5)
    assert [plan.seconds for plan in best] == sorted(plan.seconds for plan in fitting)[:5]
    assert all(plan.memory.total <= 0.88 * 80e9 for plan in best)


def test_a_step_and_its_memory_are_the_sum_of_what_is_said() -> None:
    for plan in every_plan(JOB)[::7]:
        assert isclose(fsum(asdict(plan.time).values()), plan.seconds)
        assert all(part >= 0 for part in asdict(plan.time).values())
        assert all(part >= 0 for part in asdict(plan.memory).values())


def test_a_pipeline_of_equal_stages_has_the_bubble_of_the_paper() -> None:
    even = Model("even", 32, 4096, 32, 32, 16_384, 1, 4096)
    plan = planned(Job(even, 8, 64, H100S), Layout(1, 8, 1, 1, 64))
    time = plan.time
    busy = time.products + time.elementwise + time.host
    assert isclose(time.bubble - time.exchange / 64 * 7, busy / 64 * 7, rel_tol=0.01)  # (p - 1) / m


def test_what_is_sharded_or_computed_again_is_not_held() -> None:
    held = [planned(JOB, Layout(64, 1, 1, 1, 8, zero)).memory for zero in (0, 1, 2, 3)]
    assert [memory.total for memory in held] == sorted((memory.total for memory in held), reverse=True)
    assert isclose(held[1].optimizer * 64, held[0].optimizer)
    assert isclose(held[2].gradients * 64, held[0].gradients)
    again = planned(JOB, Layout(64, 1, 1, 1, 8, 3, "full"))
    assert again.memory.activations < 0.2 * held[3].activations
    assert 1.2 < again.time.products / planned(JOB, Layout(64, 1, 1, 1, 8, 3)).time.products < 1.4


def test_a_slower_network_and_an_oversubscribed_one_cost_the_same() -> None:
    layout = Layout(64, 1, 1, 1, 8, 0)
    slow = replace(H100S, nic=replace(H100S.nic, bytes_per_second=H100S.nic.bytes_per_second / 7))
    crowded = replace(H100S, oversubscription=7.0)
    took = [planned(Job(LLAMA, 64, 512, machines), layout).time.gradients for machines in (H100S, slow, crowded)]
    assert took[1] == took[2] > 3 * took[0]


def test_memory_that_is_nearly_full_is_no_plan_to_recommend() -> None:
    tight = [plan for plan in every_plan(JOB) if plan.state == "tight"]
    assert tight
    assert not any(plan.fits for plan in tight)
    assert all(plan.time.retries > 0 for plan in tight if plan.layout.pipeline > 1)


def test_reasons_name_what_differs() -> None:
    best = best_plans(JOB, 1)[0]
    deep = planned(replace(JOB, batch=32), Layout(8, 4, 2, 1, 4, 1))
    assert "the pipeline's bubble" in why_it_loses(deep, best)
    assert "host" in why_it_loses(planned(JOB, Layout(2, 4, 8, 1, 256, 1)), best)
    assert "matrix products" in where_it_goes(best)
    assert "GB" in what_it_holds(best)
    assert all(line.startswith("With ") and line.endswith(".") for line in what_would_change_it(best))


def test_a_job_that_cannot_be_says_what_would() -> None:
    with pytest.raises(ConfigError, match=r"No plan holds llama3-405b on 16 .* GPUs would do"):
        best_plans(Job(MODELS["llama3-405b"], 16, 16, H100S))
    with pytest.raises(ConfigError, match="13 GPUs are no whole number of nodes of 8; use 8 or 16"):
        Job(LLAMA, 13, 64, H100S)
    with pytest.raises(ConfigError, match="No layout divides 296 GPUs"):
        best_plans(Job(LLAMA, 296, 7, H100S))


def test_a_hugging_face_config_is_a_model(tmp_path: Path) -> None:
    config = {
        "hidden_size": 4096, "intermediate_size": 14_336, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "vocab_size": 128_256, "max_position_embeddings": 8192, "hidden_act": "silu",
        "tie_word_embeddings": False,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    assert find_model(str(path)).parameters == find_model(str(tmp_path)).parameters == LLAMA.parameters
    for broken, words in (
        ("{", "cannot be read"),
        ("[1]", "holds no object"),
        (json.dumps({**config, "num_local_experts": 8}), "mixture of 8 experts"),
        (json.dumps({key: value for key, value in config.items() if key != "vocab_size"}), "does not say vocab_size"),
        (json.dumps({**config, "num_attention_heads": 31}), "31 heads"),
        (json.dumps({**config, "head_dim": 256}), "32 heads of 256 in a hidden size of 4096"),
    ):
        path.write_text(broken, encoding="utf-8")
        with pytest.raises(ConfigError, match=words):
            find_model(str(path))
    with pytest.raises(ConfigError, match="No model is called 'llama9'; use one of"):
        find_model("llama9")


_LLAMA_LIKE = {
    "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14_336, "max_position_embeddings": 32_768, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
_CONFIGS: dict[str, tuple[dict[str, Any], float]] = {
    "mistral": ({**_LLAMA_LIKE, "vocab_size": 32_000, "sliding_window": 4096, "head_dim": None}, 7.24e9),
    "qwen2": (
        {**_LLAMA_LIKE, "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "vocab_size": 152_064,
         "num_key_value_heads": 4, "intermediate_size": 18_944}, 7.62e9,
    ),
    "gpt2": (
        {"n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "n_inner": None, "vocab_size": 50_257,
         "activation_function": "gelu_new"}, 124e6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", _CONFIGS)
def test_a_config_of_each_family_has_its_published_parameters(kind: str, tmp_path: Path) -> None:
    config, parameters = _CONFIGS[kind]
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": kind}), encoding="utf-8")
    model = find_model(str(tmp_path))
    assert isclose(model.parameters, parameters, rel_tol=0.01)
    assert model.gated == (kind != "gpt2")
    assert best_plans(Job(replace(model, sequence=1024), 8, 8, H100S), 1)


def test_a_plan_is_carried_over_whole() -> None:
    plan = planned(Job(MODELS["llama3-70b"], 512, 512, H100S), Layout(16, 4, 8, 1, 32, 1))
    assert "(4, 16, 8)" in as_device_mesh(plan)
    compile(as_device_mesh(plan), "mesh", "exec")
    titan = as_torchtitan(plan)
    for words in ("tensor_parallel_degree 8", "pipeline_parallel_degree 4", "data_parallel_shard_degree 16",
                  "pipeline_parallel_microbatch_size 1", "local_batch_size 32", "global_batch_size 512"):  # fmt: skip
        assert words in titan
    names: dict[str, Any] = {"config": SimpleNamespace(training=SimpleNamespace(), parallelism=SimpleNamespace())}
    exec(as_torchtitan_main(plan).partition("\n")[2], names)  # torchtitan is not installed
    made = names["config"]
    assert made.training.num_tokens_per_train_step == 512 * 8192
    assert made.training.num_tokens_per_microbatch_per_dp_rank * made.parallelism.num_pp_microbatches == 32 * 8192
    assert made.parallelism.data_parallel_shard_degree * made.parallelism.data_parallel_replicate_degree == 16
    assert made.activation_checkpoint is None
    uneven = planned(Job(MODELS["llama3-405b"], 8192, 2048, H100S), Layout(64, 16, 8, 1, 32, 1, even=True))
    assert "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split" in as_megatron(uneven)
    megatron = as_megatron(plan)
    for words in ("--tensor-model-parallel-size 8", "--pipeline-model-parallel-size 4", "--global-batch-size 512",
                  "--num-query-groups 8", "--swiglu", "--use-distributed-optimizer"):  # fmt: skip
        assert words in megatron
