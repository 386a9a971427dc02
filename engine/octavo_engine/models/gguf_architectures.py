"""What a GGUF file's `general.architecture` says of its metadata and tensors.

A file states less than a `config.json`: what llama.cpp knows of an architecture by heart is here. And
its converter changes some tensors, which is undone when they are read.
Sources: llama.cpp's convert_hf_to_gguf.py and src/llama-model.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LLAMA_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Tensors of a layer -> as Hugging Face checkpoints of the Llama kind call them."""
QWEN3_LAYER: Final = LLAMA_LAYER | {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GEMMA_LAYER: Final = QWEN3_LAYER | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
PHI3_LAYER: Final = LLAMA_LAYER | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
MIXTRAL_LAYER: Final = LLAMA_LAYER | {"ffn_gate_inp": "block_sparse_moe.gate"}
QWEN3_MOE_LAYER: Final = QWEN3_LAYER | {"ffn_gate_inp": "mlp.gate"}

EXPERTS: Final = {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}
WINDOW: Final = {"attention.sliding_window": "sliding_window"}
CAPS: Final = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFArchitecture:
    """How one architecture is read."""

    model_type: str
    layer_names: Mapping[str, str]
    expert_names: Mapping[str, str] = field(default_factory=dict)
    """Tensors that hold a matrix of every expert -> one expert's name, with `{}` for its number."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Metadata beyond what all have -> its name in a configuration."""
    implied: Mapping[str, object] = field(default_factory=dict)
    """What the configuration says besides, unless the file's metadata does."""
    neighbours_paired: bool = False
    """Rows of queries and keys were reordered, to pair neighbouring dimensions for rotation."""
    norms_hold_one: bool = False
    """The one that norms add to their weights was added already."""
    wide_heads_from_layer_count: int | None = None
    """Models of so many layers scale queries by the hidden size over the heads, not by a head's width."""
    partly_rotated: bool = False
    """Fewer dimensions than a head has may be rotated."""


_LLAMA: Final = GGUFArchitecture(model_type="llama", layer_names=LLAMA_LAYER, neighbours_paired=True)

ARCHITECTURES: Final[Mapping[str, GGUFArchitecture]] = {
    "llama": _LLAMA,
    "smollm3": GGUFArchitecture(model_type="smollm3", layer_names=LLAMA_LAYER, neighbours_paired=True),
    "qwen2": GGUFArchitecture(model_type="qwen2", layer_names=LLAMA_LAYER),
    "qwen3": GGUFArchitecture(model_type="qwen3", layer_names=QWEN3_LAYER),
    "qwen3moe": GGUFArchitecture(
        model_type="qwen3_moe",
        layer_names=QWEN3_MOE_LAYER,
        expert_names={
            "ffn_gate_exps": "mlp.experts.{}.gate_proj",
            "ffn_up_exps": "mlp.experts.{}.up_proj",
            "ffn_down_exps": "mlp.experts.{}.down_proj",
        },
        fields=EXPERTS | {"expert_feed_forward_length": "moe_intermediate_size"},
        implied={"norm_topk_prob": True},
    ),
    "phi3": GGUFArchitecture(
        model_type="phi3",
        layer_names=PHI3_LAYER,
        fields=WINDOW | {"rope.scaling.original_context_length": "original_max_position_embeddings"},
        partly_rotated=True,
    ),
    "gemma2": GGUFArchitecture(
        model_type="gemma2",
        layer_names=GEMMA_LAYER,
        fields=WINDOW | CAPS,
        norms_hold_one=True,
        wide_heads_from_layer_count=46,
    ),
    "gemma3": GGUFArchitecture(
        model_type="gemma3_text",
        layer_names=GEMMA_LAYER,
        fields=WINDOW | CAPS | {"rope.freq_base_swa": "rope_local_base_freq"},
        implied={"rope_theta": 1000000.0, "rope_local_base_freq": 10000.0},
        norms_hold_one=True,
        wide_heads_from_layer_count=62,
    ),
}
LLAMA_WITH_EXPERTS: Final = GGUFArchitecture(
    model_type="mixtral",
    layer_names=MIXTRAL_LAYER,
    expert_names={
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    },
    fields=EXPERTS,
    neighbours_paired=True,
)
"""Mixtral calls itself a Llama."""
