"""A Hugging Face configuration, read into the numbers that memory depends on.

The plain formula `layers × 2 × KV heads × head width × bytes` is wrong for half of the models that
people deploy: layers differ, share, slide, compress or keep a state instead. So an architecture is a
list of layers, each with its own caches and weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from octavo.config_fields import ConfigFields, shown
from octavo.dtypes import parse_model_dtype
from octavo.errors import InvalidConfig, Unsupported
from octavo.families.class_defaults import CLASS_DEFAULTS
from octavo.families.nested import other_parts, text_part
from octavo.families.registry import FAMILIES, TYPE_OF_CLASS, UNSUPPORTED_REASONS
from octavo.foreign_fields import contradictions, foreign_fields
from octavo.layers import AttentionCache, Confidence, Layer, Weight
from octavo.model_shape import ModelShape
from octavo.quantization import Quantization
from octavo.quantization_config import cache_dtype_notes, read_quantization

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

_GEOMETRY = (*_KNOWN_FIELDS[1:], "intermediate_size", "sliding_window", "tie_word_embeddings")
"""Fields whose filling from defaults is worth a note."""


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
    quantization: Quantization | None
    params_known: bool
    """False: some part's weights are not described, so that sums are a lower bound."""
    confidence: Confidence
    notes: tuple[str, ...]

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def kv_head_counts(self) -> tuple[int, ...]:
        """Every number of KV heads that some layer has, in order."""
        caches = (cache for layer in self.layers for cache in layer.caches)
        return tuple(sorted({cache.num_kv_heads for cache in caches if isinstance(cache, AttentionCache)}))


def parse_architecture(config: Mapping[str, object]) -> ModelArchitecture | Unsupported:
    """Read a `config.json`; an unknown architecture is a value, a contradictory file an `InvalidConfig`."""
    if not isinstance(config, Mapping):
        raise InvalidConfig(f"config: must be a JSON object, got {shown(config)}")
    text = text_part(config) or config
    model_type = _model_type(text)
    family = FAMILIES.get(model_type)
    if family is None:
        return Unsupported(model_type=model_type, reason=_unsupported_reason(model_type), known=_known(text))
    fields = ConfigFields(text, CLASS_DEFAULTS.get(family.defaults_of, {}))
    shape = family.parse(fields)
    doubts = _doubts(model_type, text, fields, shape)
    towers, other_notes = other_parts(config, shape.hidden_size)
    shape = replace(
        shape,
        outside=(*shape.outside, *towers),
        params_known=shape.params_known and not other_notes,
        confidence="low" if doubts else shape.confidence,
        notes=(*shape.notes, *doubts, *_default_notes(fields), *other_notes),
    )
    return _assemble(model_type, fields, shape)


def _model_type(text: Mapping[str, object]) -> str:
    """The stated type, else the type of the class that the file names.

    A stated type that nobody knows, with a class that is known, is read as that class's, and doubted.
    """
    stated = text.get("model_type")
    if stated is not None and not isinstance(stated, str):
        raise InvalidConfig(f"model_type: must be a string, got {shown(stated)}")
    if stated is not None and stated in FAMILIES:
        return stated
    by_class = TYPE_OF_CLASS.get(_named_class(text))
    if by_class is not None:
        return by_class
    if stated is None:
        raise InvalidConfig("model_type: missing, and no architectures entry names a class that is known")
    return stated


def _named_class(text: Mapping[str, object]) -> str:
    classes = text.get("architectures")
    return classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""


def _doubts(
    model_type: str, text: Mapping[str, object], fields: ConfigFields, shape: ModelShape
) -> tuple[str, ...]:
    """What in the file contradicts the architecture it is read as; an answer all the same, no sure one."""
    return (
        *_doubts_of_name(model_type, text),
        *(
            f"A {model_type} model knows no {field}: sized as if it were not there."
            for field in foreign_fields(fields)
        ),
        *contradictions(fields, len(shape.layers)),
    )


def _doubts_of_name(model_type: str, text: Mapping[str, object]) -> tuple[str, ...]:
    stated, named = text.get("model_type"), _named_class(text)
    if stated is not None and stated not in FAMILIES:
        return (f"model_type {shown(stated)} is not known: sized as its class {named}, which may differ.",)
    has_class = model_type in TYPE_OF_CLASS.values()
    if has_class and FAMILIES[TYPE_OF_CLASS.get(named, model_type)] != FAMILIES[model_type]:
        return (f"model_type {model_type!r} and class {named} contradict each other: sized as the type.",)
    return ()


def _unsupported_reason(model_type: str) -> str:
    return UNSUPPORTED_REASONS.get(
        model_type, f"no description of the architecture {model_type!r:.60}; its memory would be a guess"
    )


def _default_notes(fields: ConfigFields) -> tuple[str, ...]:
    """One note that names what the file omits and the class's defaults filled."""
    filled = [f"{name}={shown(fields.defaulted[name])}" for name in _GEOMETRY if name in fields.defaulted]
    return (f"From the class defaults, not the file: {', '.join(filled)}.",) if filled else ()


def _confidence(fields: ConfigFields, shape: ModelShape, quantization: Quantization | None) -> Confidence:
    """A file that omits its depth or width describes its class more than a model."""
    if quantization is not None and not quantization.exact:
        return "low"
    essential = ("num_hidden_layers", "hidden_size")
    if any(name in fields.defaulted for name in essential):
        return "medium" if shape.confidence == "high" else "low"
    return shape.confidence


def _assemble(model_type: str, fields: ConfigFields, shape: ModelShape) -> ModelArchitecture:
    stored = parse_model_dtype(fields.values.get("torch_dtype") or fields.values.get("dtype"))
    quantization = read_quantization(fields.values)
    notes = shape.notes
    if stored is None:
        notes += ("The configuration names no dtype; bfloat16 is assumed.",)
    if quantization is not None and not quantization.exact:
        notes += (
            f"Quantization {quantization.method!r:.60} is not described: weights are sized as unquantized.",
        )
    notes += cache_dtype_notes(fields.values)
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
        quantization=quantization,
        params_known=shape.params_known,
        confidence=_confidence(fields, shape, quantization),
        notes=notes,
    )


def _known(config: Mapping[str, object]) -> tuple[str, ...]:
    fields = ((name, config.get(name)) for name in _KNOWN_FIELDS)
    return tuple(f"{name}={shown(value)}" for name, value in fields if value is not None)
