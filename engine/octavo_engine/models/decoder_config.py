"""What the forward pass of a decoder needs to know, read from a Hugging Face `config.json`.

Each supported `model_type` is one row of switches over the same shape; everything that would change
the result and is not understood is refused by name rather than ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.config_fields import ConfigFields
from octavo_engine.models.experts_config import (
    DEEPSEEK_V2,
    MIXTRAL,
    QWEN3_MOE,
    ExpertFamily,
    ExpertsConfig,
    parse_experts,
)
from octavo_engine.models.latent_config import LatentConfig, latent_attention_scale, parse_latent
from octavo_engine.models.rope_config import RopeConfig, parse_rope

Activation = Literal["silu", "gelu_tanh"]

ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "silu": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySwitches:
    """Where the model types differ in ways that their configurations do not spell out."""

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
    experts: ExpertFamily | None = None
    """None: every layer has one MLP."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """What differs between the layers of one model."""

    window: int | None
    rope: RopeConfig | None
    """None: this layer has no position encoding."""
    experts: ExpertsConfig | None = None
    """None: one MLP of the model's intermediate size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """One decoder, ready to be built."""

    model_type: str
    family: FamilySwitches
    layers: tuple[LayerConfig, ...]
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    latent: LatentConfig | None
    """None: keys and values of `num_kv_heads` heads of `head_dim`."""
    vocab_size: int
    max_position_embeddings: int
    norm_eps: float
    activation: Activation
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    tied_embeddings: bool
    attention_scale: float
    attention_softcap: float | None
    logits_softcap: float | None
    dtype: str
    """The checkpoint's own: bfloat16, float16 or float32."""

    @property
    def longest_context(self) -> int:
        """Tokens of the longest context that can be asked for; above the model's own with dynamic rope."""
        ropes = {layer.rope for layer in self.layers if layer.rope is not None}
        return min((rope.longest_context for rope in ropes), default=self.max_position_embeddings)


def parse_decoder_config(config: Mapping[str, object]) -> DecoderConfig:
    """Read a configuration; raises `UnsupportedModel` for what this engine cannot run exactly."""
    model_type = config.get("model_type")
    if model_type == "gemma3" and isinstance(config.get("text_config"), Mapping):
        raise UnsupportedModel("model_type gemma3 (with images): only the text model gemma3_text is served")
    family = FAMILIES.get(str(model_type))
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModel(f"model_type: {model_type!r} is not one of {known}")
    fields = ConfigFields(config)
    num_heads, hidden_size = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    latent = parse_latent(fields) if family.latent else None
    head_dim = latent.rope_dim if latent else fields.integer("head_dim", hidden_size // num_heads)
    layers = _parse_layers(fields, family, head_dim)
    bias = fields.flag("attention_bias", default=False)
    return DecoderConfig(
        model_type=str(model_type),
        family=family,
        layers=layers,
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", num_heads),
        head_dim=head_dim,
        latent=latent,
        vocab_size=fields.integer("vocab_size"),
        max_position_embeddings=fields.integer("max_position_embeddings"),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=_parse_activation(fields, family),
        qkv_bias=bias if family.qkv_bias is None else family.qkv_bias,
        output_bias=bias if family.qkv_bias is None else False,
        mlp_bias=fields.flag("mlp_bias", default=False),
        tied_embeddings=fields.flag("tie_word_embeddings", default=family.default_tied),
        attention_scale=_attention_scale(fields, family, latent, head_dim, layers[0].rope),
        attention_softcap=fields.optional_number("attn_logit_softcapping"),
        logits_softcap=fields.optional_number("final_logit_softcapping"),
        dtype=_parse_dtype(config),
    )


def _attention_scale(
    fields: ConfigFields,
    family: FamilySwitches,
    latent: LatentConfig | None,
    head_dim: int,
    rope: RopeConfig | None,
) -> float:
    if latent is not None and rope is not None:
        return latent_attention_scale(latent, rope)
    base = fields.number("query_pre_attn_scalar", head_dim) if family.sandwich_norms else head_dim
    return float(base**-0.5)


def _parse_layers(fields: ConfigFields, family: FamilySwitches, head_dim: int) -> tuple[LayerConfig, ...]:
    num_layers = fields.integer("num_hidden_layers")
    kinds = _layer_kinds(fields, num_layers)
    window = fields.optional_integer("sliding_window")
    no_rope = fields.sequence("no_rope_layers")  # SmolLM3: 0 where a layer has no rotary embedding
    ropes = {kind: parse_rope(fields.config, head_dim=head_dim, layer_kind=kind) for kind in set(kinds)}
    experts = parse_experts(fields, family.experts, num_layers)
    return tuple(
        LayerConfig(
            window=window if kind == "sliding_attention" else None,
            rope=None if no_rope is not None and not no_rope[index] else ropes[kind],
            experts=experts[index],
        )
        for index, kind in enumerate(kinds)
    )


def _layer_kinds(fields: ConfigFields, num_layers: int) -> tuple[str, ...]:
    """`full_attention` or `sliding_attention` for each layer."""
    stated = fields.sequence("layer_types")
    if stated is not None:
        kinds = tuple(str(kind) for kind in stated)
        unknown = set(kinds) - {"full_attention", "sliding_attention"}
        if unknown or len(kinds) != num_layers:
            raise UnsupportedModel(f"layer_types: {sorted(unknown) or len(kinds)} for {num_layers} layers")
        return kinds
    if fields.optional_integer("sliding_window") is None:
        return ("full_attention",) * num_layers
    return tuple(_default_kind(fields, index) for index in range(num_layers))


def _default_kind(fields: ConfigFields, index: int) -> str:
    """The kind of a layer where only a window is stated, by each model type's own rule."""
    model_type = fields.config["model_type"]
    sliding = {
        "mistral": True,
        "mixtral": True,
        "phi3": True,
        "gemma2": index % 2 == 0,
        "gemma3_text": (index + 1) % fields.integer("sliding_window_pattern", 6) != 0,
        "qwen2": _qwen_slides(fields, index),
        "qwen3": _qwen_slides(fields, index),
        "qwen3_moe": fields.flag("use_sliding_window", default=False),
    }.get(str(model_type), False)
    return "sliding_attention" if sliding else "full_attention"


def _qwen_slides(fields: ConfigFields, index: int) -> bool:
    return fields.flag("use_sliding_window", default=False) and index >= fields.integer(
        "max_window_layers", 28
    )


def _parse_activation(fields: ConfigFields, family: FamilySwitches) -> Activation:
    name = fields.config.get("hidden_activation") or fields.config.get("hidden_act")
    activation = ACTIVATIONS.get(str(name or family.default_activation))
    if activation is None:
        raise UnsupportedModel(f"hidden_act: {name!r} is not one of {', '.join(ACTIVATIONS)}")
    return activation


def _parse_dtype(config: Mapping[str, object]) -> str:
    stated = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if stated not in ("bfloat16", "float16", "float32"):
        raise UnsupportedModel(f"dtype: {stated!r} is not one of bfloat16, float16, float32")
    return stated
