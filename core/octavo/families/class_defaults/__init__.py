"""What the configuration classes fill in where a file omits a field, by `model_type`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from octavo.families.class_defaults import a_to_k, l_to_z

CLASS_DEFAULTS: Final[Mapping[str, Mapping[str, object]]] = {**a_to_k.DEFAULTS, **l_to_z.DEFAULTS}
