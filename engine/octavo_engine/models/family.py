"""Where the model types differ in ways that their configurations do not spell out.

Each supported `model_type` is one row of switches over the same shape of decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from octavo.families.class_defaults import CLASS_DEFAULTS
from octavo_engine.models.experts_config import (
    DEEPSEEK_V2,
    LLAMA4,
    MIXTRAL,
    QWEN3_MOE,
    ExpertFamily,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySwitches:
    """How one model type departs from Llama."""

    qkv_bias: bool | None = None
    """None: as `attention_bias` says."""
    qk_norm: bool = False
    fused_projections: bool = False
    """Checkpoints hold `qkv_proj` and `gate_up_proj` (Phi-3)."""
    norm_adds_one: bool = False
    """RMSNorm scales by 1 + weight (Gemma)."""
    sandwich_norms: bool = False
    """Norms also after attention and after the MLP (Gemma)."""
    scaled_embeddings: bool = False
    """Embeddings are multiplied by the root of the hidden size (Gemma)."""
    latent: bool = False
    """Attention over one compressed vector per token (DeepSeek)."""
    chunked_windows: bool = False
    """Windows stand side by side; layers without rotary embedding see all, more sharply the further
    they are, and the others norm queries and keys once they are turned (Llama-4)."""
    neighbours_paired: bool = False
    """Checkpoints pair neighbouring dimensions of a head for rotation, where we pair its halves (Llama-4)."""
    experts: ExpertFamily | None = None
    """None: every layer has one MLP."""
    mlp_module: str = "mlp"
    """Its name below its layer."""
    dense_size_field: str = "intermediate_size"
    defaults: Mapping[str, object] = field(default_factory=dict)
    """What the configuration's class fills in where a file omits it, beyond what sizes depend on."""


FAMILIES: Final[Mapping[str, FamilySwitches]] = {
    "llama": FamilySwitches(),
    "mistral": FamilySwitches(qkv_bias=False),
    "qwen2": FamilySwitches(qkv_bias=True),
    "qwen3": FamilySwitches(qk_norm=True),
    "smollm3": FamilySwitches(defaults={"rope_theta": 2e6}),
    "mixtral": FamilySwitches(
        qkv_bias=False, experts=MIXTRAL, defaults={"rope_theta": 1e6, "rms_norm_eps": 1e-5}
    ),
    "qwen3_moe": FamilySwitches(qk_norm=True, experts=QWEN3_MOE),
    "deepseek_v2": FamilySwitches(latent=True, experts=DEEPSEEK_V2),
    "phi3": FamilySwitches(
        qkv_bias=False,
        fused_projections=True,
        defaults={"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    ),
    "llama4_text": FamilySwitches(
        chunked_windows=True,
        neighbours_paired=True,
        experts=LLAMA4,
        mlp_module="feed_forward",
        dense_size_field="intermediate_size_mlp",
        defaults={"rope_theta": 5e5, "rms_norm_eps": 1e-5},
    ),
    "gemma2": FamilySwitches(
        norm_adds_one=True,
        sandwich_norms=True,
        scaled_embeddings=True,
        defaults={
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma3_text": FamilySwitches(
        qk_norm=True,
        norm_adds_one=True,
        sandwich_norms=True,
        scaled_embeddings=True,
        defaults={
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 256,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
        },
    ),
}


def with_class_defaults(config: Mapping[str, object], family: FamilySwitches) -> Mapping[str, object]:
    """The configuration with what its class fills in; an explicit null stays one.

    Published files rely on it: Gemma-3's larger models state no number of heads.
    """
    of_class = CLASS_DEFAULTS.get(str(config.get("model_type")), {})
    counts = () if family.experts is None else family.experts.count_fields
    counted = any(name in config for name in counts)  # under another of its names
    filled = {name: value for name, value in of_class.items() if not (counted and name in counts)}
    return {**filled, **family.defaults, **config}
