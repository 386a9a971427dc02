"""How long one step of an engine takes: `T = a + b·p + c·C + d·B`.

Terms: a step computes *p* prefill tokens and one token for each of *B* decoding sequences, which together
look back on *C* tokens of context. *a* is what every step pays (reading the weights), *b* one prefill
token (arithmetic), *c* one token of context (reading its keys and values), *d* one sequence (arithmetic of
its token). Before anything is measured they follow from the model and the device; `step_learning`
corrects them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from octavo.accelerators import Accelerator
from octavo.architecture import ModelArchitecture
from octavo.dtypes import MODEL_DTYPE_BYTES
from octavo.errors import InvalidSpec
from octavo.kv_sizing import kv_bytes_per_token, resolve_dtype
from octavo.weights import params_total, weights_bytes

FLOPS_PER_PARAMETER: Final = 2
"""One multiplication and one addition for each token."""
BANDWIDTH_SHARE: Final = 0.75
"""Of the data sheet's bandwidth that a kernel reaches."""
ARITHMETIC_SHARE: Final = 0.5
"""Of the data sheet's arithmetic that a matrix product of a few hundred rows reaches."""
ACCELERATOR_OVERHEAD_SECONDS: Final = 0.002
"""Scheduling, sampling and launches of one step."""
CPU_OVERHEAD_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Seconds of one step, by what it computes."""

    base_seconds: float  # a
    prefill_token_seconds: float  # b
    context_token_seconds: float  # c
    sequence_seconds: float  # d

    def __post_init__(self) -> None:
        for name in ("base_seconds", "prefill_token_seconds", "context_token_seconds", "sequence_seconds"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InvalidSpec(f"{name}: must be a positive number of seconds, got {value}")

    def step_seconds(self, *, prefill_tokens: float, context_tokens: float, sequences: float) -> float:
        """
        >>> costs = StepCosts(
        ...     base_seconds=0.02,
        ...     prefill_token_seconds=0.0002,
        ...     context_token_seconds=5e-7,
        ...     sequence_seconds=0.0001,
        ... )
        >>> costs.step_seconds(prefill_tokens=100, context_tokens=20_000, sequences=50)
        0.055
        """
        return (
            self.base_seconds
            + self.prefill_token_seconds * prefill_tokens
            + self.context_token_seconds * context_tokens
            + self.sequence_seconds * sequences
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """What one device of a replica reads and computes."""

    weights_bytes: float
    flops_per_token: float
    kv_bytes_per_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """What one device really reaches."""

    bytes_per_second: float
    flops_per_second: float
    overhead_seconds: float = CPU_OVERHEAD_SECONDS
    step_seconds: float = 0.0
    """Of one token without context, where somebody measured it; more than a small model's bytes tell."""

    def __post_init__(self) -> None:
        for name in ("bytes_per_second", "flops_per_second"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InvalidSpec(f"{name}: must be positive and finite, got {value}")


def rates_of(accelerator: Accelerator) -> DeviceRates:
    """What kernels reach of a data sheet's figures.

    >>> from octavo.accelerators import ACCELERATORS
    >>> rates_of(ACCELERATORS["A10G-24GB"]).bytes_per_second / 1e9
    450.0
    """
    return DeviceRates(
        bytes_per_second=accelerator.bandwidth_bytes_per_second * BANDWIDTH_SHARE,
        flops_per_second=accelerator.flops_bf16 * ARITHMETIC_SHARE,
        overhead_seconds=ACCELERATOR_OVERHEAD_SECONDS,
    )


def work_of(
    arch: ModelArchitecture, *, dtype: str = "auto", kv_dtype: str = "auto", tensor_parallel: int = 1
) -> ModelWork:
    """The work of one device, every expert counted: a batch of some size uses most of them.

    Source: parameters and bytes as `octavo.weights` and `octavo.kv_sizing` count them.
    """
    return ModelWork(
        weights_bytes=weights_bytes(arch, dtype=dtype, tensor_parallel=tensor_parallel),
        flops_per_token=FLOPS_PER_PARAMETER * params_total(arch) / tensor_parallel,
        kv_bytes_per_token=kv_bytes_per_token(
            arch, kv_dtype=kv_dtype, dtype=dtype, tensor_parallel=tensor_parallel
        ),
    )


def work_of_bytes(
    *, weights_bytes: float, kv_bytes_per_token: float, element_bytes: float = MODEL_DTYPE_BYTES["bfloat16"]
) -> ModelWork:
    """The work where only the bytes of a memory plan are known.

    >>> work_of_bytes(weights_bytes=16e9, kv_bytes_per_token=131_072).flops_per_token / 1e9
    16.0
    """
    parameters = weights_bytes / element_bytes
    return ModelWork(
        weights_bytes=weights_bytes,
        flops_per_token=FLOPS_PER_PARAMETER * parameters,
        kv_bytes_per_token=kv_bytes_per_token,
    )


def prior_costs(work: ModelWork, rates: DeviceRates) -> StepCosts:
    """What a step should cost, before one was measured.

    16 GB of weights at 450 GB/s: every step takes 35.6 ms, and 2 ms more of overhead.

    >>> prior = prior_costs(
    ...     ModelWork(weights_bytes=16e9, flops_per_token=16e9, kv_bytes_per_token=131_072),
    ...     DeviceRates(bytes_per_second=450e9, flops_per_second=35e12, overhead_seconds=0.002),
    ... )
    >>> round(prior.base_seconds, 4), round(1e6 * prior.prefill_token_seconds), round(
    ...     1e9 * prior.context_token_seconds
    ... )
    (0.0376, 457, 291)
    """
    token = work.flops_per_token / rates.flops_per_second
    return StepCosts(
        base_seconds=max(
            work.weights_bytes / rates.bytes_per_second + rates.overhead_seconds, rates.step_seconds
        ),
        prefill_token_seconds=token,
        # A model without a cache that grows (recurrent layers only) still has to be a positive cost.
        context_token_seconds=max(work.kv_bytes_per_token, 1.0) / rates.bytes_per_second,
        sequence_seconds=token,
    )


def prior_of_architecture(
    arch: ModelArchitecture,
    accelerator: Accelerator,
    *,
    dtype: str = "auto",
    kv_dtype: str = "auto",
    tensor_parallel: int = 1,
) -> StepCosts:
    """The prior of a model on an accelerator, in the type it is served in."""
    work = work_of(arch, dtype=resolve_dtype(arch, dtype), kv_dtype=kv_dtype, tensor_parallel=tensor_parallel)
    return prior_costs(work, rates_of(accelerator))
