"""A Hugging Face configuration, read into the numbers that memory depends on.

The plain formula `layers × 2 × KV heads × head width × bytes` is wrong for half of the models that
people deploy: layers differ, share, slide, compress or keep a state instead. So an architecture is a
list of layers, each with its own caches and weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.config_fields import ConfigFields, shown
from octavo.dtypes import parse_model_dtype
from octavo.errors import InvalidConfig, Unsupported
from octavo.families.class_defaults import CLASS_DEFAULTS
from octavo.families.registry import FAMILIES
from octavo.layers import Confidence, Layer, Weight
from octavo.model_shape import ModelShape

_KNOWN_FIELDS = (
    "architectures",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArchitecture:
    """A model's layers and weights, and what is not certain about them."""

    model_type: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    """The longest context that the configuration states; 0 where it states none."""
    num_attention_heads: int
    dtype: str
    """As stored: bfloat16, float16 or float32."""
    layers: tuple[Layer, ...]
    outside: tuple[Weight, ...]
    widest_activation: int
    params_known: bool
    confidence: Confidence
    notes: tuple[str, ...]

    @property
    def num_layers(self) -> int:
        return len(self.layers)


def parse_architecture(config: Mapping[str, object]) -> ModelArchitecture | Unsupported:
    """Read a `config.json`; an unknown architecture is a value, a contradictory file an `InvalidConfig`."""
    if not isinstance(config, Mapping):
        raise InvalidConfig(f"config: must be a JSON object, got {shown(config)}")
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise InvalidConfig(f"model_type: must be a string, got {shown(model_type)}")
    family = FAMILIES.get(model_type)
    if family is None:
        return Unsupported(
            model_type=model_type,
            reason=f"no description of the architecture {model_type!r}; its memory would be a guess",
            known=_known_fields(config),
        )
    fields = ConfigFields(config, CLASS_DEFAULTS.get(family.defaults_of, {}))
    return _assemble(model_type, config, family.parse(fields), fields)


def _assemble(
    model_type: str, config: Mapping[str, object], shape: ModelShape, fields: ConfigFields
) -> ModelArchitecture:
    stored = parse_model_dtype(config.get("torch_dtype", config.get("dtype")))
    notes = list(shape.notes)
    if stored is None:
        notes.append("The configuration names no dtype; bfloat16 is assumed.")
    return ModelArchitecture(
        model_type=model_type,
        hidden_size=shape.hidden_size,
        vocab_size=shape.vocab_size,
        max_position_embeddings=shape.max_position_embeddings,
        num_attention_heads=shape.num_attention_heads,
        dtype=stored or "bfloat16",
        layers=shape.layers,
        outside=shape.outside,
        widest_activation=shape.widest_activation,
        params_known=shape.params_known,
        confidence=shape.confidence,
        notes=tuple(notes),
    )


def _known_fields(config: Mapping[str, object]) -> tuple[str, ...]:
    fields = ((name, config.get(name)) for name in _KNOWN_FIELDS)
    return tuple(f"{name}={shown(value)}" for name, value in fields if value is not None)
