"""How many parameters a model has, and the bytes they take on one device.

Tensor parallelism cuts linear maps, experts, embeddings and the head; norms, routers and the latent
projections of MLA are on every device, and a KV projection is cut no finer than its heads.
"""

from __future__ import annotations

from collections.abc import Iterator

from octavo.architecture import ModelArchitecture
from octavo.dtypes import MODEL_DTYPE_BYTES, resolve_model_dtype
from octavo.layers import Weight
from octavo.quantization import quantized_bytes
from octavo.units import ceil_div


def all_weights(arch: ModelArchitecture) -> Iterator[tuple[int | None, Weight]]:
    """Every weight, with the index of its layer; None for those outside the layers."""
    yield from ((None, weight) for weight in arch.outside)
    for index, layer in enumerate(arch.layers):
        yield from ((index, weight) for weight in layer.weights)


def params_total(arch: ModelArchitecture) -> int:
    """Parameters of the whole model, tied ones counted once."""
    return sum(weight.num_parameters for _, weight in all_weights(arch))


def weight_bytes(
    arch: ModelArchitecture, weight: Weight, layer: int | None, *, element_bytes: int, tensor_parallel: int
) -> int:
    """Bytes of one weight on one device."""
    quantized = None
    if arch.quantization is not None:
        quantized = quantized_bytes(arch.quantization, weight, layer)
    whole = weight.num_parameters * element_bytes if quantized is None else quantized
    return ceil_div(whole, min(tensor_parallel, weight.pieces or tensor_parallel))


def weights_bytes(arch: ModelArchitecture, *, dtype: str = "auto", tensor_parallel: int = 1) -> int:
    """Bytes of the loaded weights on one device of a tensor-parallel group."""
    element_bytes = MODEL_DTYPE_BYTES[resolve_model_dtype(arch.dtype, dtype)]
    return sum(
        weight_bytes(arch, weight, layer, element_bytes=element_bytes, tensor_parallel=tensor_parallel)
        for layer, weight in all_weights(arch)
    )


def stage_weights_bytes(
    arch: ModelArchitecture, layers: range, *, dtype: str = "auto", tensor_parallel: int = 1
) -> int:
    """Bytes on one device of one pipeline stage: its layers, and what the first and last stage add.

    The first stage has the embeddings and towers, the last one the head; a tied head is a second
    copy of the embedding there.
    """
    element_bytes = MODEL_DTYPE_BYTES[resolve_model_dtype(arch.dtype, dtype)]
    first, last = layers.start == 0, layers.stop == arch.num_layers
    tied = not any(weight.role == "head" for weight in arch.outside)
    chosen = [(index, weight) for index in layers for weight in arch.layers[index].weights]
    outside: list[tuple[int | None, Weight]] = [
        (None, weight)
        for weight in arch.outside
        if (last if weight.role == "head" else first)
        or (last and tied and weight.role == "embedding")
        or (last and weight.role == "vector")
    ]
    return sum(
        weight_bytes(arch, weight, layer, element_bytes=element_bytes, tensor_parallel=tensor_parallel)
        for layer, weight in (*outside, *chosen)
    )
