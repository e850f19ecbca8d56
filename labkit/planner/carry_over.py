"""A plan in other programs' words: a DeviceMesh, torchtitan's arguments and configuration, Megatron-LM's arguments."""

from __future__ import annotations

from labkit.planner.layout import Layout
from labkit.planner.plan import Plan


def as_device_mesh(plan: Plan) -> str:
    """Return Python that makes the plan's mesh, for torch's own parallel wrappers."""
    split = plan.layout
    lines = [
        "import torch",
        "from torch.distributed.device_mesh import init_device_mesh",
        *_imports(split),
        "",
        f"shape, names = ({split.pipeline}, {split.data}, {split.tensor}), ('pipeline', 'data', 'tensor')",
        "mesh = init_device_mesh('cuda', shape, mesh_dim_names=names)",
        f"microbatch, accumulation, recompute = {split.microbatch}, {split.accumulation}, {split.recompute == 'full'}",
        "# model: this rank's stage, its layers already split over mesh['tensor']",
    ]
    optimizer = "optimizer = torch.optim.AdamW(model.parameters())"
    if split.zero > 1:
        lines.append(
            f"fully_shard(model, mesh=mesh['data'], reshard_after_forward={split.zero == 3})  # each layer first"
        )
    elif split.data > 1:
        lines.append("model = DistributedDataParallel(model, process_group=mesh.get_group('data'))")
        if split.zero:
            group = "process_group=mesh.get_group('data')"
            optimizer = f"optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, {group})"
    return "\n".join([*lines, optimizer])


def _imports(split: Layout) -> list[str]:
    if split.zero > 1:
        return ["from torch.distributed.fsdp import fully_shard"]
    wrapped = ["from torch.nn.parallel import DistributedDataParallel"] if split.data > 1 else []
    sharded = ["from torch.distributed.optim import ZeroRedundancyOptimizer"] if split.zero and split.data > 1 else []
    return sharded + wrapped


def as_torchtitan(plan: Plan) -> str:
    """Return the arguments of torchtitan 0.2.2 (its ``config/job_config.py``).

    torchtitan shards with FSDP or replicates: ZeRO 1 becomes FSDP, too.
    """
    split, model = plan.layout, plan.job.model
    sharded = split.zero > 0
    said = [
        f"--training.seq_len {model.sequence}",
        f"--training.local_batch_size {split.microbatch * (split.accumulation if split.pipeline > 1 else 1)}",
        f"--training.global_batch_size {split.batch}",
        f"--parallelism.data_parallel_shard_degree {split.data if sharded else 1}",
        f"--parallelism.data_parallel_replicate_degree {1 if sharded else split.data}",
        f"--parallelism.tensor_parallel_degree {split.tensor}",
        f"--parallelism.pipeline_parallel_degree {split.pipeline}",
    ]
    if split.sharding > 1:
        said.append(f"--parallelism.fsdp_reshard_after_forward {'always' if split.sharding == 3 else 'never'}")
    if split.pipeline > 1:
        said.append(f"--parallelism.pipeline_parallel_microbatch_size {split.microbatch}")
        said.append("--parallelism.pipeline_parallel_schedule 1F1B")
    said.append(f"--activation_checkpoint.mode {'full' if split.recompute == 'full' else 'none'}")
    return " ".join(said)


def as_torchtitan_main(plan: Plan) -> str:
    """Return lines for the configuration of torchtitan's main branch of August 2026, which is Python.

    It counts in tokens, and recomputation is no argument there (``config/configs.py``, ``trainer.py``).
    """
    split, sequence = plan.layout, plan.job.model.sequence
    sharded = split.zero > 0
    training = {
        "max_context_length": sequence,
        "num_tokens_per_microbatch_per_dp_rank": split.microbatch * sequence,
        "num_tokens_per_train_step": split.batch * sequence,
    }
    parallelism: dict[str, object] = {
        "data_parallel_shard_degree": split.data if sharded else 1,
        "data_parallel_replicate_degree": 1 if sharded else split.data,
        "tensor_parallel_degree": split.tensor,
        "pipeline_parallel_degree": split.pipeline,
    }
    if split.sharding > 1:
        parallelism["fsdp_reshard_after_forward"] = "always" if split.sharding == 3 else "never"
    if split.pipeline > 1:
        parallelism["num_pp_microbatches"] = split.accumulation
        parallelism["pipeline_parallel_schedule"] = "1F1B"
    again = "FullAC.Config()" if split.recompute == "full" else "None"
    return "\n".join(
        [
            "from torchtitan.distributed.activation_checkpoint import FullAC",
            "",
            "# config: a Trainer.Config of the model",
            *(f"config.training.{name} = {value}" for name, value in training.items()),
            *(f"config.parallelism.{name} = {value!r}" for name, value in parallelism.items()),
            f"config.activation_checkpoint = {again}",
        ]
    )


def as_megatron(plan: Plan) -> str:
    """Return Megatron-LM's arguments (``megatron/training/arguments.py`` of NVIDIA/Megatron-LM)."""
    split, model = plan.layout, plan.job.model
    said = [
        f"--num-layers {model.layers}",
        f"--hidden-size {model.hidden}",
        f"--ffn-hidden-size {model.intermediate}",
        f"--num-attention-heads {model.heads}",
        f"--seq-length {model.sequence}",
        f"--max-position-embeddings {model.sequence}",
        f"--tensor-model-parallel-size {split.tensor}",
        f"--pipeline-model-parallel-size {split.pipeline}",
        f"--micro-batch-size {split.microbatch}",
        f"--global-batch-size {split.batch}",
        "--bf16",
    ]
    if model.kv_heads != model.heads:
        said.append(f"--group-query-attention --num-query-groups {model.kv_heads}")
    if model.gated:
        said.append("--swiglu")
    if model.layers % split.pipeline and not (model.layers + 2) % split.pipeline:
        said.append("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split")
    if split.tensor > 1:
        said.append("--sequence-parallel")
    if split.zero == 3:
        said.append("--use-torch-fsdp2")
    elif split.zero:
        said.append("--use-distributed-optimizer")
    if split.recompute == "full":
        said.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    return " ".join(said)
