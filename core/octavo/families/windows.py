"""How far back each layer's attention sees, in all the spellings that configurations use.

The kinds of the layers come, in this order, from: `layer_types`, a pattern in the file, the rule of
the family's class. A window alone says nothing: Qwen2 states one and switches it off, Mistral states
one and slides every layer, Gemma 2 every second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from octavo.config_fields import ConfigFields
from octavo.errors import InvalidConfig

LayerKind = Literal["full", "sliding", "chunked"]
WindowRule = Literal["none", "every", "every_second", "pattern", "from_layer", "nope_chunks"]
"""Which layers a family's class slides when the file does not list them."""

_KIND_OF_TYPE: dict[str, LayerKind] = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "global": "full",
    "sliding_attention": "sliding",
    "local_attention": "sliding",
    "local": "sliding",
    "sliding": "sliding",
    "chunked_attention": "chunked",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What one layer's queries see: the last `window` tokens, or all (None)."""

    window: int | None = None
    chunked: bool = False


FULL = Reach()


def layer_types(fields: ConfigFields, num_layers: int, name: str = "layer_types") -> tuple[str, ...] | None:
    """The listed kind of every layer, or None where the file lists none."""
    listed = fields.sequence(name)
    if listed is None:
        return None
    if len(listed) < num_layers or not all(isinstance(kind, str) for kind in listed):
        raise InvalidConfig(f"{fields.where}{name}: must name a kind for each of the {num_layers} layers")
    return tuple(str(kind) for kind in listed[:num_layers])


def read_reaches(
    fields: ConfigFields, num_layers: int, rule: WindowRule, *, period: int = 0
) -> tuple[Reach, ...]:
    """The reach of every layer."""
    listed = layer_types(fields, num_layers)
    kinds = (
        tuple(_kind_of(fields, name) for name in listed)
        if listed is not None
        else _kinds_by_rule(fields, num_layers, rule, period)
    )
    return tuple(_reach(fields, kind) for kind in kinds)


def _kind_of(fields: ConfigFields, name: str) -> LayerKind:
    if name not in _KIND_OF_TYPE:
        raise InvalidConfig(f"{fields.where}layer_types: {name!r:.60} is no kind of attention that is known")
    return _KIND_OF_TYPE[name]


def _reach(fields: ConfigFields, kind: LayerKind) -> Reach:
    if kind == "full":
        return FULL
    if kind == "chunked":
        return Reach(window=fields.integer("attention_chunk_size"), chunked=True)
    window = fields.optional_integer("sliding_window")
    return Reach(window=window)


def _kinds_by_rule(
    fields: ConfigFields, num_layers: int, rule: WindowRule, period: int
) -> Sequence[LayerKind]:
    if rule == "nope_chunks":
        return _chunked_unless_no_rope(fields, num_layers)
    if rule == "none" and not fields.has("sliding_window_pattern"):
        return _all("full", num_layers)  # the class knows no window, and so asks for none
    if fields.raw("sliding_window") is None or not fields.flag("use_sliding_window", rule != "from_layer"):
        return _all("full", num_layers)
    pattern = _pattern(fields, period)
    if rule == "pattern" or (pattern and fields.has("sliding_window_pattern")):
        return _by_pattern(num_layers, pattern)
    if rule == "every_second":
        return _by_pattern(num_layers, 2)
    if rule == "from_layer":
        first = fields.integer_or("max_window_layers", num_layers)
        return [_sliding_if(index >= first) for index in range(num_layers)]
    return _all("sliding" if rule == "every" else "full", num_layers)


def _pattern(fields: ConfigFields, period: int) -> int | str:
    """A period (every n-th layer is full), or letters (`LLLG`)."""
    value = fields.raw("sliding_window_pattern")
    if isinstance(value, str) and value:
        return value
    stated = fields.optional_integer("sliding_window_pattern", least=0)
    return period if stated is None else stated


def _by_pattern(num_layers: int, pattern: int | str) -> Sequence[LayerKind]:
    if isinstance(pattern, str):
        letters = (pattern[index % len(pattern)].upper() for index in range(num_layers))
        return [_sliding_if(letter == "L") for letter in letters]
    if pattern == 0:
        return _all("full", num_layers)
    return [_sliding_if((index + 1) % pattern != 0) for index in range(num_layers)]


def _all(kind: LayerKind, num_layers: int) -> Sequence[LayerKind]:
    return (kind,) * num_layers


def _sliding_if(slides: bool) -> LayerKind:
    return "sliding" if slides else "full"


def _chunked_unless_no_rope(fields: ConfigFields, num_layers: int) -> Sequence[LayerKind]:
    """Llama 4: layers without rotary positions see all, the others one chunk."""
    if fields.raw("attention_chunk_size") is None:
        return _all("full", num_layers)
    rotary = fields.integers("no_rope_layers")
    if not rotary:
        interval = fields.integer_or("no_rope_layer_interval", 4, least=1)
        rotary = tuple(int((index + 1) % interval != 0) for index in range(num_layers))
    if len(rotary) < num_layers:
        raise InvalidConfig(f"{fields.where}no_rope_layers: must have one entry for each layer")
    kinds: list[LayerKind] = ["chunked" if has_rope else "full" for has_rope in rotary[:num_layers]]
    return kinds
