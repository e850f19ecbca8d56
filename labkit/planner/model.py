"""The decoder-only transformers that are planned for: sizes, parameters, arithmetic, and where to find them by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from labkit.errors import ConfigError
from labkit.words import join, plainly


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer.

    Attributes:
        name: What it is called.
        layers: Blocks of attention and MLP.
        hidden: Width of the residual stream.
        heads: Attention heads.
        kv_heads: Heads of keys and values; fewer than `heads` with grouped queries.
        intermediate: Width of the MLP.
        vocabulary: Tokens that embedding and head know.
        sequence: Tokens of one training sequence.
        gated: Whether the MLP has a gate (three matrices, as Llama's) or not (two, as GPT's).
        tied: Whether embedding and head are one matrix where one rank holds both.
        source: Where the sizes stand.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    sequence: int
    gated: bool = True
    tied: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        sizes = ("layers", "hidden", "heads", "kv_heads", "intermediate", "vocabulary", "sequence")
        for size in sizes:
            if not isinstance(getattr(self, size), int) or getattr(self, size) < 1:
                raise ConfigError(
                    f"{self.name}: {size} is {getattr(self, size)!r}; it must be an integer of at least 1."
                )
        if self.hidden % self.heads:
            raise ConfigError(f"{self.name}: {self.heads} heads do not divide a hidden size of {self.hidden}.")
        if self.heads % self.kv_heads:
            raise ConfigError(f"{self.name}: {self.kv_heads} key-value heads do not divide {self.heads} heads.")

    @property
    def layer_parameters(self) -> int:
        """Parameters of the matrices of one layer."""
        return self.attention_parameters + (3 if self.gated else 2) * self.hidden * self.intermediate

    @property
    def attention_parameters(self) -> int:
        """Parameters of the four projections of attention."""
        return 2 * self.hidden * self.hidden + 2 * self.hidden * self.hidden * self.kv_heads // self.heads

    @property
    def head_parameters(self) -> int:
        """Parameters of the head, and as many again of the embedding."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, on one rank."""
        return self.layers * self.layer_parameters + (1 if self.tied else 2) * self.head_parameters

    @property
    def flops_per_token(self) -> int:
        """Floating-point operations of forward and backward for one token.

        6 for each parameter of a matrix and 12 x layers x hidden x sequence for attention, as PaLM counts them
        (Chowdhery et al. 2022, appendix B).
        """
        matrices = self.layers * self.layer_parameters + self.head_parameters
        return 6 * matrices + 12 * self.layers * self.hidden * self.sequence


def _llama(name: str, layers: int, hidden: int, heads: int, kv_heads: int, intermediate: int) -> Model:
    source = "Llama 3 (Llama team 2024, arXiv 2407.21783, table 3)"
    return Model(name, layers, hidden, heads, kv_heads, intermediate, 128_256, 8192, source=source)


def _gpt(name: str, layers: int, hidden: int, heads: int, vocabulary: int, sequence: int, source: str) -> Model:
    return Model(
        name, layers, hidden, heads, heads, 4 * hidden, vocabulary, sequence, gated=False, tied=True, source=source
    )


_NANOTRON = "benchmarks of the Ultra-Scale Playbook (Hugging Face 2025)"
_MEGATRON = "Narayanan et al. 2021, arXiv 2104.04473, table 1"
_MEGASCALE = "Jiang et al. 2024, arXiv 2402.15627, table 1"
_ALL = (
    _llama("llama3-8b", 32, 4096, 32, 8, 14_336),
    _llama("llama3-70b", 80, 8192, 64, 8, 28_672),
    _llama("llama3-405b", 126, 16_384, 128, 8, 53_248),
    Model("llama2-7b", 32, 4096, 32, 32, 11_008, 32_000, 4096, source="Touvron et al. 2023, arXiv 2307.09288"),
    Model("llama2-70b", 80, 8192, 64, 8, 28_672, 32_000, 4096, source="Touvron et al. 2023, arXiv 2307.09288"),
    _gpt("gpt2-xl", 48, 1600, 25, 50_257, 1024, "Radford et al. 2019, table 2"),
    _gpt("gpt3-175b", 96, 12_288, 96, 51_200, 2048, _MEGATRON),
    Model(
        "megascale-175b", 96, 12_288, 128, 128, 49_152, 64_000, 2048, gated=False, tied=True, source=_MEGASCALE
    ),
    _gpt("megatron-530b", 105, 20_480, 128, 51_200, 2048, _MEGATRON),
    Model("nanotron-1b", 16, 2048, 32, 32, 8192, 131_072, 4096, tied=True, source=_NANOTRON),
    Model("nanotron-3b", 28, 3072, 32, 32, 8192, 131_072, 4096, tied=True, source=_NANOTRON),
    Model("nanotron-8b", 32, 4096, 32, 32, 14_336, 131_072, 4096, tied=True, source=_NANOTRON),
    Model("nanotron-80b", 80, 8192, 64, 64, 28_672, 131_072, 4096, tied=True, source=_NANOTRON),
)  # fmt: skip

MODELS: Mapping[str, Model] = MappingProxyType({model.name: model for model in _ALL})


def named(name: str) -> Model | None:
    """Return the model of the catalogue with this name, in capitals or not, "Llama-3.1-8B" or "llama3-8b"."""
    return next((model for model in MODELS.values() if _plain(model.name) == _plain(name)), None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).replace("llama31", "llama3")


def find_model(name: str) -> Model:
    """Return the model of this name, or the one that a Hugging Face ``config.json`` describes.

    Args:
        name: A name of the catalogue, or the path of a ``config.json`` or of its folder.

    Raises:
        ConfigError: If there is no such model, or the file does not describe one.
    """
    if model := named(name):
        return model
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" or path.exists():
        return read_config(path)
    raise ConfigError(
        f"No model is called {name!r}; use one of {join(MODELS)}, the path of a config.json, or "
        "--layers, --hidden, --heads, --intermediate, --vocabulary and --seq."
    )


def read_config(path: Path) -> Model:
    """Return the model that a Hugging Face ``config.json`` describes.

    Raises:
        ConfigError: If the file cannot be read or lacks a size.
    """
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a model's config.json: {plainly(error)}.") from None
    if not isinstance(said, dict):
        raise ConfigError(f"{path} is not a model's config.json: it holds no object.")
    experts = said.get("num_local_experts") or said.get("n_routed_experts") or said.get("num_experts")
    if experts:
        raise ConfigError(f"{path} describes a mixture of {experts} experts; only dense transformers are planned for.")
    hidden = _size(path, said, "hidden_size", "n_embd", "d_model")
    heads = _size(path, said, "num_attention_heads", "n_head", "n_heads")
    inner = said.get("intermediate_size", said.get("n_inner")) or 4 * hidden
    kv_heads, width = said.get("num_key_value_heads") or heads, said.get("head_dim") or hidden // max(heads, 1)
    if width != hidden // max(heads, 1):
        raise ConfigError(
            f"{path} has {heads} heads of {width} in a hidden size of {hidden}; heads that do not fill it are not "
            "planned for."
        )
    return Model(
        name=str(said.get("_name_or_path") or path.parent.resolve().name),
        layers=_size(path, said, "num_hidden_layers", "n_layer", "n_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        intermediate=inner,
        vocabulary=_size(path, said, "vocab_size"),
        sequence=_size(path, said, "max_position_embeddings", "n_positions", "max_seq_len"),
        gated=str(said.get("hidden_act", said.get("activation_function", "silu"))) in ("silu", "swish")
        or str(said.get("model_type", "")).startswith("gemma"),
        tied=bool(said.get("tie_word_embeddings", "n_embd" in said)),
        source=str(path),
    )


def with_sequence(model: Model, sequence: int | None) -> Model:
    """Return the model trained on sequences of another length."""
    return model if sequence is None else replace(model, sequence=sequence)


def _size(path: Path, said: dict[str, Any], *names: str) -> int:
    for name in names:
        if isinstance(said.get(name), int):
            return int(said[name])
    raise ConfigError(f"{path} does not say {names[0]}, which a plan needs.")
