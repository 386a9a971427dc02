"""What the forward pass of a decoder needs to know, read from a Hugging Face `config.json`.

Everything that would change the result and is not understood is refused by name rather than ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from octavo.dtypes import parse_model_dtype
from octavo.errors import InvalidConfig
from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.config_fields import ConfigFields
from octavo_engine.models.family import FAMILIES, FamilySwitches, with_class_defaults
from octavo_engine.models.latent_config import LatentConfig, latent_attention_scale, parse_latent
from octavo_engine.models.layer_config import LayerConfig, parse_layers
from octavo_engine.models.nested_text import text_config
from octavo_engine.models.rope_config import RopeConfig

Activation = Literal["silu", "gelu_tanh"]

ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "silu": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTemperature:
    """Queries of layers without rotary embedding grow with their position (arXiv 2501.19399)."""

    floor: float
    """Tokens over which the factor stays the same."""
    strength: float


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
    turned_norm: bool
    """Queries and keys are normed after they are turned, without weights (Llama-4)."""
    temperature: QueryTemperature | None
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
    config = text_config(config)
    model_type = config.get("model_type")
    family = FAMILIES.get(str(model_type))
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModel(f"model_type: {model_type!r} is not one of {known}")
    _require_as_trained(config)
    fields = ConfigFields(with_class_defaults(config, family))
    num_heads, hidden_size = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    latent = parse_latent(fields) if family.latent else None
    head_dim = latent.rope_dim if latent else fields.integer("head_dim", hidden_size // num_heads)
    layers = parse_layers(fields, family, head_dim)
    bias = fields.flag("attention_bias", default=False)
    return DecoderConfig(
        model_type=str(model_type),
        family=family,
        layers=layers,
        hidden_size=hidden_size,
        intermediate_size=fields.integer(family.dense_size_field),
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(fields, num_heads),
        head_dim=head_dim,
        latent=latent,
        vocab_size=fields.integer("vocab_size"),
        max_position_embeddings=fields.integer("max_position_embeddings"),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        activation=_parse_activation(fields),
        qkv_bias=bias if family.qkv_bias is None else family.qkv_bias,
        output_bias=bias if family.qkv_bias is None else False,
        mlp_bias=fields.flag("mlp_bias", default=False),
        tied_embeddings=fields.flag("tie_word_embeddings", default=False),
        attention_scale=_attention_scale(fields, family, latent, head_dim, layers[0].rope),
        attention_softcap=fields.optional_number("attn_logit_softcapping"),
        turned_norm=family.chunked_windows and fields.flag("use_qk_norm", default=True),
        temperature=_temperature(fields) if family.chunked_windows else None,
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


def _temperature(fields: ConfigFields) -> QueryTemperature | None:
    if not fields.flag("attn_temperature_tuning", default=True):
        return None
    return QueryTemperature(
        floor=fields.number("floor_scale", 8192), strength=fields.number("attn_scale", 0.1)
    )


def _require_as_trained(config: Mapping[str, object]) -> None:
    """Refuse what would change every number, before anything is read."""
    for name in ("quantization_config", "compression_config"):
        quantization = config.get(name)
        if quantization is not None:
            method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
            raise UnsupportedModel(f"{name}: {method!r:.60} is not served; use the unquantized checkpoint")
    if config.get("use_bidirectional_attention"):
        raise UnsupportedModel("use_bidirectional_attention: such a model generates no text")


def _num_kv_heads(fields: ConfigFields, num_heads: int) -> int:
    num_kv_heads = fields.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise UnsupportedModel(f"num_key_value_heads: {num_kv_heads} do not divide {num_heads} query heads")
    return num_kv_heads


def _parse_activation(fields: ConfigFields) -> Activation:
    name = fields.config.get("hidden_activation") or fields.config.get("hidden_act") or "silu"
    activation = ACTIVATIONS.get(str(name))
    if activation is None:
        raise UnsupportedModel(f"hidden_act: {name!r} is not one of {', '.join(ACTIVATIONS)}")
    return activation


def _parse_dtype(config: Mapping[str, object]) -> str:
    """As the plan reads it, too."""
    try:
        return parse_model_dtype(config.get("dtype") or config.get("torch_dtype")) or "bfloat16"
    except InvalidConfig as error:
        raise UnsupportedModel(str(error)) from error
