"""How many parameters a model has, and the bytes they take on one device."""

from __future__ import annotations

from octavo.architecture import ModelArchitecture
from octavo.dtypes import MODEL_DTYPE_BYTES, resolve_model_dtype
from octavo.layers import Weight
from octavo.units import ceil_div


def all_weights(arch: ModelArchitecture) -> tuple[Weight, ...]:
    return (*arch.outside, *(weight for layer in arch.layers for weight in layer.weights))


def params_total(arch: ModelArchitecture) -> int:
    """Parameters of the whole model, tied ones counted once."""
    return sum(weight.num_parameters for weight in all_weights(arch))


def weights_bytes(arch: ModelArchitecture, *, dtype: str = "auto", tensor_parallel: int = 1) -> int:
    """Bytes of the loaded weights on one device of a tensor-parallel group."""
    element_bytes = MODEL_DTYPE_BYTES[resolve_model_dtype(arch.dtype, dtype)]
    return sum(
        ceil_div(weight.num_parameters, min(tensor_parallel, weight.pieces or tensor_parallel))
        * element_bytes
        for weight in all_weights(arch)
    )
