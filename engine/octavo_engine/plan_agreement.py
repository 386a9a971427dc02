"""Whether the memory that this engine measured is the memory that was planned for it.

The engine measures without looking at any plan. Afterwards the plan is made as the operator makes it,
from the configuration and the limit alone, and the two are compared term by term, so that a wrong
formula is known by name before somebody runs out of memory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.engine_contract import PLAN_TOLERANCE
from octavo.errors import OctavoError
from octavo.planning import Infeasible, MemoryPlan, Workload, plan_cpu
from octavo.units import format_bytes
from octavo_engine.config import EngineConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Where the limit went, as seen in this process."""

    weights_bytes: int
    runtime_bytes: int
    """In use besides the weights before the first step."""
    activation_bytes: int
    """Of the widest step, with attention at the end of a context of full length."""
    block_bytes: int
    num_blocks: int
    """That the rest of the limit holds, whatever is then allocated."""

    @property
    def kv_bytes(self) -> int:
        return self.num_blocks * self.block_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One size, as planned and as measured."""

    name: str
    planned: int
    measured: int

    @property
    def difference(self) -> int:
        return abs(self.measured - self.planned)

    def __str__(self) -> str:
        return f"{self.name} {format_bytes(self.measured)}, planned {format_bytes(self.planned)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How a measurement stands to a plan."""

    deviation: float
    """Of the KV cache, as a share of the planned one."""
    terms_off: tuple[Term, ...]
    """Empty within the tolerance."""


def compare(plan: MemoryPlan, measured: MeasuredMemory) -> Agreement:
    """Which terms are to blame where the KV cache differs by more than the tolerance.

    | KV cache         | terms that differ by more than 3 % of it | blamed      |
    | within 3 %       | any                                      | none        |
    | off by more      | some                                     | these       |
    | off by more      | none: many small ones add up             | the largest |
    """
    planned_kv = plan.kv_blocks * plan.block_bytes
    deviation = measured.kv_bytes / planned_kv - 1 if planned_kv else float(bool(measured.kv_bytes))
    block = Term(name="one KV block", planned=plan.block_bytes, measured=measured.block_bytes)
    is_block_off = block.difference > PLAN_TOLERANCE * plan.block_bytes
    if abs(deviation) <= PLAN_TOLERANCE and not is_block_off:
        return Agreement(deviation=deviation, terms_off=())
    terms = (
        Term(name="weights", planned=plan.weights_bytes, measured=measured.weights_bytes),
        Term(name="one step", planned=plan.activation_bytes, measured=measured.activation_bytes),
        Term(name="runtime", planned=plan.runtime_bytes, measured=measured.runtime_bytes),
    )
    off = [term for term in terms if term.difference > PLAN_TOLERANCE * planned_kv]
    if is_block_off:
        off.append(block)
    return Agreement(
        deviation=deviation, terms_off=tuple(off) or (max(terms, key=lambda term: term.difference),)
    )


def plan_for(
    config: EngineConfig, raw_config: Mapping[str, object], *, limit_bytes: int
) -> MemoryPlan | Infeasible | None:
    """The plan that the operator would make for this very engine; None where the core knows no such model."""
    try:
        arch = parse_architecture(raw_config)
        if not isinstance(arch, ModelArchitecture):
            return None
        return plan_cpu(arch, _workload(config), memory_limit_bytes=limit_bytes)
    except OctavoError:
        return None  # the engine reads what the core refuses: nothing to compare with


def _workload(config: EngineConfig) -> Workload:
    return Workload(
        max_model_len=config.max_model_len,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_num_seqs=config.max_num_seqs,
        kv_dtype=config.kv_cache_dtype,
        dtype=config.dtype,
        block_size=config.block_size,
    )


def report_agreement(
    config: EngineConfig,
    raw_config: Mapping[str, object],
    measured: MeasuredMemory | None,
    *,
    limit_bytes: int,
) -> None:
    """One line in the log; a warning where plan and measurement part. Nothing where nothing was measured."""
    if measured is None:
        return
    plan = plan_for(config, raw_config, limit_bytes=limit_bytes)
    if isinstance(plan, Infeasible):
        logger.warning("measured room for %d KV blocks, but the plan: %s", measured.num_blocks, plan.message)
    elif plan is not None:
        log_comparison(plan, measured)


def log_comparison(plan: MemoryPlan, measured: MeasuredMemory) -> None:
    """Say it, with the numbers of both."""
    agreement = compare(plan, measured)
    counts = (measured.num_blocks, plan.kv_blocks, 100 * agreement.deviation)
    if not agreement.terms_off:
        logger.info("measured room for %d KV blocks, planned %d (%+.1f %%): as planned", *counts)
        return
    terms = "; ".join(map(str, agreement.terms_off))
    logger.warning("measured room for %d KV blocks, planned %d (%+.1f %%); off: %s", *counts, terms)
