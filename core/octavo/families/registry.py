"""Which parser reads which `model_type`, with the defaults of the family's configuration class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from octavo.config_fields import ConfigFields
from octavo.families import decoder
from octavo.model_shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A parser and what its configuration class fills in."""

    parse: Callable[[ConfigFields], ModelShape]
    defaults: Mapping[str, object] = field(default_factory=dict)


FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family(parse=decoder.parse_decoder),
}
