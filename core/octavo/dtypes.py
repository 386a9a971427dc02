"""Element types: their names in a configuration, on the command line and in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from octavo.config_fields import shown
from octavo.errors import InvalidConfig, InvalidSpec

MODEL_DTYPE_BYTES: Final[Mapping[str, int]] = {"bfloat16": 2, "float16": 2, "float32": 4}
KV_DTYPE_BYTES: Final[Mapping[str, int]] = {"float32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}

_KV_NAME_OF_MODEL_DTYPE: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "float32"}
_SPELLINGS: Final = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
}


def parse_model_dtype(value: object) -> str | None:
    """The stored type as a configuration names it; None where it names none.

    >>> parse_model_dtype("torch.bfloat16")
    'bfloat16'
    """
    if value is None or value == "auto":
        return None
    if not isinstance(value, str):
        raise InvalidConfig(f"torch_dtype: must be a name such as 'bfloat16', got {shown(value)}")
    name = value.removeprefix("torch.")
    name = _SPELLINGS.get(name, name)
    if name not in MODEL_DTYPE_BYTES:
        raise InvalidConfig(f"torch_dtype: {shown(value)} is none of {', '.join(MODEL_DTYPE_BYTES)}")
    return name


def resolve_model_dtype(stored: str, requested: str) -> str:
    """The type that weights are served in.

    A checkpoint stored in float32 is served in bfloat16 unless float32 is asked for by name, as
    every engine does: its weights were trained or kept in half precision all the same.
    """
    if requested == "auto":
        return "bfloat16" if stored == "float32" else stored
    name = _SPELLINGS.get(requested, requested)
    if name not in MODEL_DTYPE_BYTES:
        raise InvalidSpec(f"dtype: {requested!r} is none of auto, {', '.join(MODEL_DTYPE_BYTES)}")
    return name


def resolve_kv_dtype_name(served: str, requested: str) -> str:
    """The type of keys and values: `auto` follows the served weights' type."""
    if requested == "auto":
        return _KV_NAME_OF_MODEL_DTYPE[served]
    name = _KV_NAME_OF_MODEL_DTYPE.get(requested, requested)
    if name not in KV_DTYPE_BYTES:
        raise InvalidSpec(f"kv-cache-dtype: {requested!r} is none of auto, {', '.join(KV_DTYPE_BYTES)}")
    return name
