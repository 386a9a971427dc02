"""What a family's parser hands back: the layers, the weights around them, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config_fields import ConfigFields
from octavo.errors import InvalidConfig
from octavo.layers import Confidence, Layer, Weight

UNKNOWN_CONTEXT = 0
"""`max_position_embeddings` of a model that states none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model as memory sees it, in no family's own words any more."""

    layers: tuple[Layer, ...]
    outside: tuple[Weight, ...]
    """Embeddings, head, last norm, vision and audio towers."""
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    num_attention_heads: int
    widest_activation: int
    """Elements per token of the widest intermediate that one step holds."""
    confidence: Confidence = "high"
    notes: tuple[str, ...] = ()
    params_known: bool = True
    """False: some weights could not be derived, so that their sum is a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The numbers that nearly every decoder has."""

    num_layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    positions: int


def read_dimensions(
    fields: ConfigFields, *, kv_heads: int | None = None, num_layers: int | None = None
) -> Dimensions:
    """Read the common numbers; what is given overrules the field (multi-query, patterns)."""
    hidden = fields.integer("hidden_size")
    heads = fields.integer("num_attention_heads")
    if kv_heads is None:
        kv_heads = fields.optional_integer("num_key_value_heads") or heads
    if kv_heads > heads:
        raise InvalidConfig(
            f"{fields.where}num_key_value_heads: {kv_heads} is more than the {heads} query heads"
        )
    if heads % kv_heads:
        raise InvalidConfig(
            f"{fields.where}num_key_value_heads: {kv_heads} do not share out the {heads} query heads evenly"
        )
    return Dimensions(
        num_layers=fields.num_layers() if num_layers is None else num_layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.optional_integer("head_dim") or derived_head_dim(fields, hidden, heads),
        intermediate=fields.integer_or("intermediate_size", 4 * hidden, least=1),
        vocab=fields.integer("vocab_size"),
        positions=fields.integer_or("max_position_embeddings", UNKNOWN_CONTEXT, least=1),
    )


def derived_head_dim(fields: ConfigFields, hidden: int, heads: int) -> int:
    """`hidden / heads` in whole numbers, as the model classes take it where no head width is given."""
    if hidden < heads:
        raise InvalidConfig(
            f"{fields.where}hidden_size: {hidden} is too small for {heads} attention heads; give head_dim"
        )
    return hidden // heads
