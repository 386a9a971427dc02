"""Where the model types differ in ways that their configurations do not spell out.

Each supported `model_type` is one row of switches over the same shape of decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

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
    default_tied: bool = False
    default_activation: str = "silu"


FAMILIES: Final[Mapping[str, FamilySwitches]] = {
    "llama": FamilySwitches(),
    "mistral": FamilySwitches(qkv_bias=False),
    "qwen2": FamilySwitches(qkv_bias=True),
    "qwen3": FamilySwitches(qk_norm=True),
    "smollm3": FamilySwitches(default_tied=True),
    "mixtral": FamilySwitches(qkv_bias=False, experts=MIXTRAL),
    "qwen3_moe": FamilySwitches(qk_norm=True, experts=QWEN3_MOE),
    "deepseek_v2": FamilySwitches(latent=True, experts=DEEPSEEK_V2),
    "phi3": FamilySwitches(qkv_bias=False, fused_projections=True),
    "llama4_text": FamilySwitches(
        chunked_windows=True,
        neighbours_paired=True,
        experts=LLAMA4,
        mlp_module="feed_forward",
        dense_size_field="intermediate_size_mlp",
    ),
    "gemma2": FamilySwitches(
        norm_adds_one=True,
        sandwich_norms=True,
        scaled_embeddings=True,
        default_tied=True,
        default_activation="gelu_pytorch_tanh",
    ),
    "gemma3_text": FamilySwitches(
        qk_norm=True,
        norm_adds_one=True,
        sandwich_norms=True,
        scaled_embeddings=True,
        default_tied=True,
        default_activation="gelu_pytorch_tanh",
    ),
}
