"""What a file says about its caches that its family has no use for, or that says nothing clear.

A type that is known may come with an attention, a mixture of experts or a state that its class never
had (a fork keeps the name of what it was forked from). Its parser would pass over the field and answer
with a wrong number as if it were sure, so every parser's questions are remembered and compared.
"""

from __future__ import annotations

from typing import Final

from octavo.config_fields import ConfigFields, shown

TELLING_FIELDS: Final = (
    *("kv_lora_rank", "index_head_dim", "compress_ratios", "v_head_dim", "attention_chunk_size"),
    *("interleaved_sliding_window", "sliding_window_pattern", "sliding_window", "layer_types"),
    *("num_kv_shared_layers", "use_cla", "num_key_value_heads_per_layer", "block_configs"),
    *("global_head_dim", "num_global_key_value_heads", "swa_num_key_value_heads", "hybrid_layer_pattern"),
    *("layers_block_type", "block_types", "hybrid_override_pattern", "attn_type_list", "attn_layer_period"),
    *("attn_layer_indices", "full_attn_idxs", "linear_attn_config"),
    *("linear_num_key_heads", "mamba_d_state", "ssm_state_size", "mamba_num_heads", "conv_L_cache"),
    *("lru_width", "cross_attention_layers", "hidden_size_per_layer_input"),
    *("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
)
"""Each decides which layers cache what, or is the sign of parts with weights of their own."""

SLIDING_TYPES: Final = ("sliding_attention", "local_attention", "sliding", "local")


def foreign_fields(fields: ConfigFields) -> tuple[str, ...]:
    """Telling fields that the file states and the family's parser never asked for, as `name=value`."""
    unasked = [name for name in TELLING_FIELDS if name not in fields.asked]
    if "layer_types" in fields.values or fields.values.get("use_sliding_window") is False:
        unasked = [name for name in unasked if name != "sliding_window"]  # which layers slide is said
    stated = ((name, fields.values.get(name)) for name in unasked)
    return tuple(f"{name}={shown(value)}" for name, value in stated if _tells_something(value))


def _tells_something(value: object) -> bool:
    """Not what stands for "none of it": null, false, nought, one expert, attention in every layer."""
    if isinstance(value, list | tuple):
        return any(item not in ("full_attention", "attention") for item in value)
    return value is True or (bool(value) and value != 1)


def contradictions(fields: ConfigFields, num_layers: int) -> tuple[str, ...]:
    """What the list of the layers' kinds leaves open, in words."""
    listed = fields.values.get("layer_types")
    if not isinstance(listed, list | tuple) or "layer_types" not in fields.asked:
        return ()
    words = []
    if len(listed) not in (num_layers, num_layers + _predicting_layers(fields)):
        words.append(f"layer_types names {len(listed)} layers, of which the model has {num_layers}.")
    if any(item in SLIDING_TYPES for item in listed) and fields.raw("sliding_window") is None:
        words.append("layer_types names sliding layers, but there is no sliding_window: sized without one.")
    return tuple(words)


def _predicting_layers(fields: ConfigFields) -> int:
    """Layers that predict further tokens: listed with the others, but not loaded to serve."""
    value = fields.values.get("num_nextn_predict_layers")
    return value if isinstance(value, int) else 0
