"""Typed reading of a Hugging Face configuration: aliases, class defaults, and refusals that help.

A field is looked up by its usual name, then by the names that other families gave it, then in the
defaults of the family's configuration class. What came from the defaults is remembered, so that an
answer can say which of its numbers the file never held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from octavo.errors import InvalidConfig

LARGEST_DIMENSION: Final = 1 << 31
"""No width, vocabulary or context is larger; a larger number is a mistake, not a model."""
LARGEST_FACTOR: Final = 1 << 16
"""No multiplier of a width is larger."""
MOST_LAYERS: Final = 4096
"""No model is deeper; a larger number would only exhaust memory."""

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "num_transformer_layers"),
    "hidden_size": ("n_embd", "d_model", "model_dim", "n_embed"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "kv_n_heads"),
    "head_dim": ("attention_head_dim", "kv_channels"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size", "ff_intermediate_size", "d_ff"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": (
        "n_positions",
        "n_ctx",
        "seq_length",
        "max_seq_len",
        "max_sequence_length",
        "model_max_length",
        "max_context_length",
    ),
    "tie_word_embeddings": ("tie_embedding", "use_embedding_sharing", "share_input_output_layers"),
}


def shown(value: object) -> str:
    """A value short enough for a message, whatever it is (a number may have thousands of digits)."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return f"{value!r:.60}"


@dataclass(slots=True)
class ConfigFields:
    """One configuration object (or a nested one) with its class defaults."""

    values: Mapping[str, object]
    defaults: Mapping[str, object] = field(default_factory=dict)
    where: str = ""
    """Prefix of a nested object (`text_config.`) for messages."""
    defaulted: dict[str, object] = field(default_factory=dict)
    """Fields answered by the class defaults, in the order of asking."""
    asked: set[str] = field(default_factory=set)
    """Every key that the family's parser looked for: what it never asks for, it does not understand."""

    def raw(self, name: str) -> object:
        """The value as given, by its usual name or an alias; else the class default.

        An explicit null is an answer (`sliding_window: null` is full attention), not a gap to fill.
        """
        keys = self._keys(name)
        present = [self.values[key] for key in keys if key in self.values]
        if present:
            return next((value for value in present if value is not None), None)
        value = next((self.defaults[key] for key in keys if key in self.defaults), None)
        if value is not None:
            self.defaulted[name] = value
        return value

    def has(self, name: str) -> bool:
        """Whether the file itself holds the field, not null."""
        return any(self.values.get(key) is not None for key in self._keys(name))

    def _keys(self, name: str) -> tuple[str, ...]:
        """The usual name and the others, remembered as asked for."""
        keys = (name, *ALIASES.get(name, ()))
        self.asked.update(keys)
        return keys

    def integer(self, name: str, *, least: int = 1, most: int = LARGEST_DIMENSION) -> int:
        """A whole number that must be there."""
        value = self.raw(name)
        if value is None:
            raise InvalidConfig(f"{self.where}{name}: missing, and no default of the class is known")
        return self._checked_integer(name, value, least, most)

    def optional_integer(self, name: str, *, least: int = 1, most: int = LARGEST_DIMENSION) -> int | None:
        value = self.raw(name)
        return None if value is None else self._checked_integer(name, value, least, most)

    def integer_or(self, name: str, fallback: int, *, least: int = 0, most: int = LARGEST_DIMENSION) -> int:
        value = self.optional_integer(name, least=least, most=most)
        return fallback if value is None else value

    def num_layers(self) -> int:
        return self.integer("num_hidden_layers", most=MOST_LAYERS)

    def flag(self, name: str, fallback: bool = False) -> bool:
        value = self.raw(name)
        if value is None:
            return fallback
        if not isinstance(value, bool):
            raise InvalidConfig(f"{self.where}{name}: must be true or false, got {shown(value)}")
        return value

    def text(self, name: str) -> str | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, str):
            raise InvalidConfig(f"{self.where}{name}: must be a string, got {shown(value)}")
        return value

    def number(self, name: str, fallback: float) -> float:
        """A factor: above zero and of a size that factors have."""
        value = self.raw(name)
        if value is None:
            return fallback
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST_FACTOR:
            raise InvalidConfig(
                f"{self.where}{name}: must be a number above 0, at most {LARGEST_FACTOR}, got {shown(value)}"
            )
        return float(value)

    def sequence(self, name: str) -> Sequence[object] | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, list | tuple):
            raise InvalidConfig(f"{self.where}{name}: must be a list, got {shown(value)}")
        return value

    def integers(self, name: str, *, least: int = 0) -> tuple[int, ...] | None:
        """A list of whole numbers, or None where absent."""
        values = self.sequence(name)
        if values is None:
            return None
        return tuple(self._checked_integer(f"{name}[{i}]", v, least) for i, v in enumerate(values))

    def nested(self, name: str, defaults: Mapping[str, object] | None = None) -> ConfigFields | None:
        """A nested object as fields of its own, or None where absent."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InvalidConfig(f"{self.where}{name}: must be an object, got {shown(value)}")
        return ConfigFields(value, defaults or {}, f"{self.where}{name}.")

    def _checked_integer(self, name: str, value: object, least: int, most: int = LARGEST_DIMENSION) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidConfig(f"{self.where}{name}: must be a whole number, got {shown(value)}")
        if not least <= value <= most:
            raise InvalidConfig(
                f"{self.where}{name}: must lie between {least} and {most}, got {shown(value)}"
            )
        return value
