"""The families of decoders that differ from Llama in a few switches, one entry each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from octavo.families.attention import AttentionTraits
from octavo.families.decoder import LLAMA, DecoderTraits
from octavo.families.feed_forward import ExpertTraits

NO_BIAS: Final = AttentionTraits(qkv_bias=False, output_bias=False)
ALL_BIAS: Final = AttentionTraits(qkv_bias=True, output_bias=True)
QKV_BIAS: Final = AttentionTraits(qkv_bias=True, output_bias=False)
QKV_BIAS_FIELD: Final = AttentionTraits(output_bias=False)
HEAD_NORM: Final = AttentionTraits(qk_norm="head")
FULL_NORM: Final = AttentionTraits(qk_norm="full")

_GPT: Final = DecoderTraits(attention=ALL_BIAS, mlp_bias=True, gated=False, norm_vectors=2)
"""The GPT-2 line: LayerNorm, biases, an MLP without a gate."""

_QWEN_MOE: Final = ExpertTraits(sparse_layers="step")
_DEEPSEEK_MOE: Final = ExpertTraits(sparse_layers="after_dense", shared="count")

DENSE_TRAITS: Final[Mapping[str, DecoderTraits]] = {
    "llama": LLAMA,
    "mistral": DecoderTraits(attention=NO_BIAS, mlp_bias=False, window_rule="every"),
    "ministral": DecoderTraits(attention=NO_BIAS, mlp_bias=False, window_rule="every"),
    "ministral3": DecoderTraits(attention=NO_BIAS, mlp_bias=False, window_rule="every"),
    "qwen2": DecoderTraits(attention=QKV_BIAS, mlp_bias=False, window_rule="from_layer"),
    "qwen3": DecoderTraits(attention=HEAD_NORM, mlp_bias=False, window_rule="from_layer"),
    "gemma": DecoderTraits(mlp_bias=False),
    "gemma2": DecoderTraits(mlp_bias=False, window_rule="every_second", norms_per_layer=4),
    "gemma3_text": DecoderTraits(
        attention=HEAD_NORM, mlp_bias=False, window_rule="pattern", window_period=6, norms_per_layer=4
    ),
    "vaultgemma": DecoderTraits(mlp_bias=False, window_rule="every_second"),
    "phi3": DecoderTraits(attention=NO_BIAS, mlp_bias=False, window_rule="every"),
    "granite": LLAMA,
    "smollm3": DecoderTraits(window_rule="from_layer"),
    "olmo": DecoderTraits(mlp_bias=False, norm_vectors=0),
    "olmo2": DecoderTraits(attention=FULL_NORM, mlp_bias=False),
    "olmo3": DecoderTraits(attention=FULL_NORM, mlp_bias=False, window_rule="pattern", window_period=4),
    "cohere": DecoderTraits(
        attention=AttentionTraits(qk_norm="each_head", qk_norm_switch="use_qk_norm"),
        mlp_bias=False,
        norms_per_layer=1,
    ),
    "cohere2": DecoderTraits(mlp_bias=False, norms_per_layer=1, window_rule="pattern", window_period=4),
    "nemotron": DecoderTraits(gated=False, norm_vectors=2),
    "arcee": DecoderTraits(gated=False),
    "apertus": DecoderTraits(attention=HEAD_NORM, gated=False, mlp_bias=False, vectors_per_layer=2),
    "helium": DecoderTraits(attention=AttentionTraits(output_bias=False), mlp_bias="mlp_bias"),
    "glm": DecoderTraits(attention=QKV_BIAS_FIELD, mlp_bias=False),
    "glm4": DecoderTraits(attention=QKV_BIAS_FIELD, mlp_bias=False, norms_per_layer=4),
    "exaone4": DecoderTraits(
        attention=AttentionTraits(qkv_bias=False, output_bias=False, qk_norm="head"),
        mlp_bias=False,
        window_rule="pattern",
    ),
    "exaone": DecoderTraits(attention=NO_BIAS, mlp_bias=False),
    "seed_oss": DecoderTraits(attention=AttentionTraits(output_bias="attention_out_bias")),
    "ernie4_5": DecoderTraits(
        attention=AttentionTraits(qkv_bias="use_bias", output_bias="use_bias"), mlp_bias="use_bias"
    ),
    "hunyuan_v1_dense": DecoderTraits(attention=HEAD_NORM, mlp_bias=False),
    "internlm3": DecoderTraits(
        attention=AttentionTraits(qkv_bias="qkv_bias", output_bias="bias"), mlp_bias="bias"
    ),
    "internlm2": DecoderTraits(
        attention=AttentionTraits(qkv_bias="bias", output_bias="bias"), mlp_bias=False
    ),
    "baichuan": DecoderTraits(attention=NO_BIAS, mlp_bias=False),
    "minicpm": DecoderTraits(mlp_bias=False),
    "phi": DecoderTraits(
        attention=AttentionTraits(
            qkv_bias=True, output_bias=True, qk_norm="head_biased", qk_norm_switch="qk_layernorm"
        ),
        mlp_bias=True,
        gated=False,
        norms_per_layer=1,
        norm_vectors=2,
        head_bias=True,
    ),
    "gpt2": DecoderTraits(
        attention=ALL_BIAS, mlp_bias=True, gated=False, norm_vectors=2, learned_positions=0
    ),
    "gptj": DecoderTraits(
        attention=NO_BIAS, mlp_bias=True, gated=False, norms_per_layer=1, norm_vectors=2, head_bias=True
    ),
    "codegen": DecoderTraits(
        attention=NO_BIAS, mlp_bias=True, gated=False, norms_per_layer=1, norm_vectors=2, head_bias=True
    ),
    "gpt_neox": DecoderTraits(mlp_bias=True, gated=False, norm_vectors=2),
    "starcoder2": DecoderTraits(
        attention=AttentionTraits(qkv_bias="use_bias", output_bias="use_bias"),
        mlp_bias="use_bias",
        gated=False,
        norm_vectors=2,
        window_rule="every",
    ),
    "bloom": DecoderTraits(
        attention=ALL_BIAS, mlp_bias=True, gated=False, norm_vectors=2, embedding_norm=True
    ),
    "persimmon": DecoderTraits(
        attention=AttentionTraits(
            qkv_bias=True, output_bias=True, qk_norm="head_biased", qk_norm_switch="qk_layernorm"
        ),
        mlp_bias=True,
        gated=False,
        norm_vectors=2,
    ),
    "biogpt": DecoderTraits(
        attention=ALL_BIAS, mlp_bias=True, gated=False, norm_vectors=2, learned_positions=2
    ),
}

MOE_TRAITS: Final[Mapping[str, DecoderTraits]] = {
    "mixtral": DecoderTraits(
        attention=NO_BIAS,
        mlp_bias=False,
        window_rule="every",
        experts=ExpertTraits(width_field="intermediate_size"),
    ),
    "qwen2_moe": DecoderTraits(
        attention=AttentionTraits(qkv_bias="qkv_bias", output_bias=False),
        mlp_bias=False,
        window_rule="from_layer",
        experts=ExpertTraits(
            sparse_layers="step",
            shared="width",
            shared_field="shared_expert_intermediate_size",
            shared_gate=True,
        ),
    ),
    "qwen3_moe": DecoderTraits(attention=HEAD_NORM, mlp_bias=False, window_rule="every", experts=_QWEN_MOE),
    "olmoe": DecoderTraits(
        attention=FULL_NORM, mlp_bias=False, experts=ExpertTraits(width_field="intermediate_size")
    ),
    "flex_olmo": DecoderTraits(
        attention=FULL_NORM, mlp_bias=False, experts=ExpertTraits(width_field="intermediate_size")
    ),
    "phimoe": DecoderTraits(
        mlp_bias=False,
        norm_vectors=2,
        window_rule="every",
        head_bias="lm_head_bias",
        experts=ExpertTraits(width_field="intermediate_size"),
    ),
    "granitemoe": DecoderTraits(mlp_bias=False, experts=ExpertTraits(width_field="intermediate_size")),
    "granitemoeshared": DecoderTraits(
        mlp_bias=False,
        experts=ExpertTraits(
            width_field="intermediate_size", shared="width", shared_field="shared_intermediate_size"
        ),
    ),
    "glm4_moe": DecoderTraits(
        attention=AttentionTraits(output_bias=False, qk_norm="head", qk_norm_switch="use_qk_norm"),
        mlp_bias=False,
        experts=_DEEPSEEK_MOE,
    ),
    "dots1": DecoderTraits(
        attention=HEAD_NORM, mlp_bias=False, window_rule="from_layer", experts=_DEEPSEEK_MOE
    ),
    "solar_open": DecoderTraits(
        attention=AttentionTraits(output_bias=False), mlp_bias=False, experts=_DEEPSEEK_MOE
    ),
    "ernie4_5_moe": DecoderTraits(
        attention=AttentionTraits(qkv_bias="use_bias", output_bias="use_bias"),
        mlp_bias="use_bias",
        head_bias="use_bias",
        experts=ExpertTraits(
            sparse_layers="range",
            shared="count",
            shared_field="moe_num_shared_experts",
            shared_bias="use_bias",
            correction_bias=True,
        ),
    ),
    "hunyuan_v1_moe": DecoderTraits(
        attention=HEAD_NORM,
        mlp_bias=False,
        experts=ExpertTraits(width_field="intermediate_size", shared="always"),
    ),
    "minimax_m2": DecoderTraits(
        attention=AttentionTraits(qkv_bias=False, output_bias=False, qk_norm="full"),
        mlp_bias=False,
        experts=ExpertTraits(width_field="intermediate_size"),
    ),
    "gpt_oss": DecoderTraits(
        attention=AttentionTraits(sinks=True),
        window_rule="every_second",
        experts=ExpertTraits(width_field="intermediate_size", router_bias=True, expert_bias=True),
    ),
    "llama4_text": DecoderTraits(
        mlp_bias=False,
        window_rule="nope_chunks",
        dense_width_field="intermediate_size_mlp",
        experts=ExpertTraits(width_field="intermediate_size", sparse_layers="interleaved", shared="always"),
    ),
    "exaone_moe": DecoderTraits(
        attention=AttentionTraits(qkv_bias=False, output_bias=False, qk_norm="head"),
        mlp_bias=False,
        window_rule="pattern",
        experts=ExpertTraits(sparse_layers="after_dense", shared="count", shared_field="num_shared_experts"),
    ),
    "aria_text": DecoderTraits(
        experts=ExpertTraits(
            width_field="intermediate_size", shared="count", shared_field="moe_num_shared_experts"
        )
    ),
    "deepseek": DecoderTraits(mlp_bias=False, experts=_DEEPSEEK_MOE),
    "grok-1": DecoderTraits(
        attention=NO_BIAS,
        mlp_bias=False,
        norms_per_layer=4,
        experts=ExpertTraits(width_field="intermediate_size"),
        confidence="medium",
        notes=("Grok-1's file is read as its repository's code does; its weights are not verified.",),
    ),
}
