"""`quantization_config` of a checkpoint, read into a `Quantization`.

A method that is not described gives no wrong number: the weights are then sized as if unquantized,
which is too much, and the answer says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from octavo.config_fields import ConfigFields
from octavo.quantization import EXPERTS_ONLY, Exclusion, Quantization, Scheme

FP16_BITS: Final = 16
FP32_BITS: Final = 32
INT32_BITS: Final = 32

FP8_PER_TENSOR: Final = Scheme(bits=8)
INT8_PER_CHANNEL: Final = Scheme(bits=8, scale_bits=FP32_BITS)
MXFP4: Final = Scheme(bits=4, group_size=32, scale_bits=8)
NVFP4: Final = Scheme(bits=4, group_size=16, scale_bits=8)
NF4_DOUBLE: Final = Scheme(bits=4, group_size=64, scale_bits=8)
"""bitsandbytes with double quantization: an 8-bit scale for 64 elements, themselves scaled by 256."""
NF4: Final = Scheme(bits=4, group_size=64, scale_bits=FP32_BITS)

EXCLUSION_FIELDS: Final = (
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "exclude",
    "llm_int8_skip_modules",
)
MIXED_FIELDS: Final = ("dynamic", "extra_config", "quantized_layers")
"""Where GPTQModel, AutoRound and ModelOpt give some modules other bits than the rest: not described."""
MOST_EXCLUSIONS: Final = 20_000


def read_quantization(config: Mapping[str, object]) -> Quantization | None:
    """The quantization that a configuration states, or None."""
    fields = _stated(config)
    if fields is None:
        return None
    method = _method(fields)
    read = _READERS.get(method)
    excluded = tuple(_exclusions(fields))
    scheme = None if read is None or any(fields.values.get(name) for name in MIXED_FIELDS) else read(fields)
    if scheme is None:
        return Quantization(method=method, scheme=Scheme(bits=FP16_BITS), exact=False)
    if method == "mxfp4":
        return Quantization(method=method, scheme=scheme, roles=EXPERTS_ONLY, excluded=excluded)
    return Quantization(method=method, scheme=scheme, excluded=excluded)


def _stated(config: Mapping[str, object]) -> ConfigFields | None:
    """The quantization object, by its name or by the one that early compressed-tensors files used."""
    for name in ("quantization_config", "compression_config"):
        fields = ConfigFields(config).nested(name)
        if fields is not None and fields.values:
            return fields
    return None


def cache_dtype_notes(config: Mapping[str, object]) -> tuple[str, ...]:
    """A checkpoint may come with scales for an FP8 KV cache; nothing is cached so unless asked for."""
    fields = _stated(config)
    nested = fields.nested("quantization") if fields is not None else None
    scopes = [scope for scope in (fields, nested) if scope is not None]
    if not any(scope.has("kv_cache_scheme") or scope.has("kv_cache_quant_algo") for scope in scopes):
        return ()
    return ("The checkpoint is made for a quantized KV cache; ask for it with kv-cache-dtype fp8.",)


def _method(fields: ConfigFields) -> str:
    stated = fields.text("quant_method")
    if stated is None and (fields.has("load_in_4bit") or fields.has("load_in_8bit")):
        return "bitsandbytes"
    return (stated or "unnamed").lower().replace("_", "-")


def _fp8(fields: ConfigFields) -> Scheme:
    block = fields.integers("weight_block_size", least=1)
    if block is not None and len(block) == 2:
        return Scheme(bits=8, block=(block[0], block[1]), scale_bits=FP32_BITS)
    return FP8_PER_TENSOR


def _gptq(fields: ConfigFields) -> Scheme:
    bits = fields.integer("bits", most=8)
    group = _group_size(fields)
    return Scheme(bits=bits, group_size=group, scale_bits=FP16_BITS, zero_bits=bits, index_bits=INT32_BITS)


def _awq(fields: ConfigFields) -> Scheme:
    bits = fields.integer_or("bits", fields.integer_or("w_bit", 4), least=1, most=8)
    return Scheme(bits=bits, group_size=_group_size(fields), scale_bits=FP16_BITS, zero_bits=bits)


def _group_size(fields: ConfigFields) -> int:
    """-1 means one group for all inputs."""
    size = fields.optional_integer("group_size", least=-1)
    if size is None:
        size = fields.integer_or("q_group_size", 128, least=-1)
    return max(0, size)


def _bitsandbytes(fields: ConfigFields) -> Scheme | None:
    if fields.flag("load_in_8bit") or fields.flag("_load_in_8bit"):
        return INT8_PER_CHANNEL
    if not (fields.flag("load_in_4bit") or fields.flag("_load_in_4bit")):
        return None
    return NF4_DOUBLE if fields.flag("bnb_4bit_use_double_quant") else NF4


def _compressed_tensors(fields: ConfigFields) -> Scheme | None:
    """All linear maps alike; several groups with other weights, or with some maps only, are not described."""
    groups = fields.nested("config_groups")
    if groups is None:
        return None
    schemes = {_compressed_group(groups, name, fields.text("format")) for name in groups.values}
    return schemes.pop() if len(schemes) == 1 else None


def _compressed_group(groups: ConfigFields, name: str, container: str | None) -> Scheme | None:
    group = groups.nested(name)
    weights = group.nested("weights") if group is not None else None
    if group is None or weights is None:
        return None
    if "Linear" not in (group.sequence("targets") or ("Linear",)):
        return None
    bits = weights.integer("num_bits", most=16)
    layout = group.text("format") or container or ""
    if layout.startswith("nvfp4"):
        return NVFP4
    if layout.startswith("mxfp4"):
        return MXFP4
    strategy = weights.text("strategy")
    if strategy == "group":
        zero = 0 if weights.flag("symmetric", True) else bits
        return Scheme(bits=bits, group_size=_group_size(weights), scale_bits=FP16_BITS, zero_bits=zero)
    if strategy == "block":
        block = weights.integers("block_structure", least=1) or (128, 128)
        return Scheme(bits=bits, block=(block[0], block[-1]), scale_bits=FP32_BITS)
    return Scheme(bits=bits, scale_bits=FP32_BITS if strategy == "channel" else 0)


def _modelopt(fields: ConfigFields) -> Scheme | None:
    nested = fields.nested("quantization") or fields
    algorithm = (nested.text("quant_algo") or fields.text("quant_algo") or "").upper()
    if "NVFP4" in algorithm:
        return NVFP4
    if algorithm.startswith("FP8"):
        return FP8_PER_TENSOR
    if "W4A16" in algorithm or "W4A8" in algorithm:
        return Scheme(bits=4, group_size=_group_size(nested), scale_bits=FP16_BITS)
    return _compressed_tensors(fields) if fields.has("config_groups") else None


def _eight_bits(fields: ConfigFields) -> Scheme:
    return INT8_PER_CHANNEL


def _mxfp4(fields: ConfigFields) -> Scheme:
    return MXFP4


_READERS: Final[Mapping[str, Callable[[ConfigFields], Scheme | None]]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fp8,
    "gptq": _gptq,
    "gptq-marlin": _gptq,
    "auto-round": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "mxfp4": _mxfp4,
    "eetq": _eight_bits,
    "experts-int8": _eight_bits,
}


def _exclusions(fields: ConfigFields) -> Iterable[Exclusion]:
    nested = fields.nested("quantization")
    for scope in (fields, nested):
        for name in EXCLUSION_FIELDS if scope is not None else ():
            entries = scope.sequence(name) if scope is not None else None
            for entry in (entries or ())[:MOST_EXCLUSIONS]:
                exclusion = parse_exclusion(entry) if isinstance(entry, str) else None
                if exclusion is not None:
                    yield exclusion


def parse_exclusion(entry: str) -> Exclusion | None:
    """A dotted name, a wildcard, or a simple regular expression (`re:.*self_attn.*`).

    Expressions are not run: only dots, stars and names are understood, so that a hostile file cannot
    keep the planner busy. What is not understood excludes nothing, which errs by a few per cent.
    """
    text = entry
    if entry.startswith("re:"):
        text = (
            entry.removeprefix("re:").replace("\\d+", "*").replace("\\.", ".").strip("^$").replace(".*", "*")
        )
    is_anywhere = text.startswith("*") or text.endswith("*")
    text = text.strip("*").strip(".")
    if not re.fullmatch(r"[\w.*-]+", text):
        return None
    components = tuple(text.split("."))
    if "layers" in components:
        return Exclusion(components=components[components.index("layers") :])
    if is_anywhere and "*" not in text:
        return Exclusion(components=(text,), anywhere=True)
    return Exclusion(components=components)
