"""The memory plan of one revision: spec and config.json in, a plan or a refusal out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final

from octavo import engine_contract as contract
from octavo.accelerators import find_accelerator
from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.errors import InvalidSpec, OctavoError, Unsupported
from octavo.planning import Infeasible, MemoryPlan, Workload, plan_accelerator, plan_cpu
from octavo_operator.api.quantities import parse_memory_bytes
from octavo_operator.api.spec import Accelerator, InferenceServiceSpec
from octavo_operator.api.status import MAX_NOTE_LENGTH, MAX_NOTES, MemoryPlanStatus
from octavo_operator.decide.target import Refusal
from octavo_operator.desired.pod_template import KV_DTYPE_FLAGS

DEVICE: Final = "cuda"
"""PyTorch's name for the devices of core's table."""
FLAG_DTYPE: Final = "--dtype"
PLAN_HASH_LENGTH: Final = 10
DEFAULT_FOR_SEQUENCES: Final = 4
DEFAULT_BATCHED_TOKENS: Final = 512


def plan_memory(spec: InferenceServiceSpec, config: Mapping[str, object]) -> MemoryPlan | Refusal:
    """
    | config.json, memory    | answer                                                    |
    |------------------------|-----------------------------------------------------------|
    | malformed              | `InvalidConfig`                                           |
    | unknown architecture   | `UnsupportedModel`                                        |
    | a flag's value is none | `InvalidArguments`                                        |
    | does not fit           | `InsufficientMemory` or `ContextTooLong`, with the way out |
    | fits                   | the plan                                                  |
    """
    try:
        architecture = parse_architecture(config)
    except OctavoError as error:
        return Refusal(reason="InvalidConfig", message=f"config.json: {error}")
    if isinstance(architecture, Unsupported):
        known = f" (read from config.json: {', '.join(architecture.known)})" if architecture.known else ""
        message = f"Model type {architecture.model_type!r} is not supported: {architecture.reason}{known}"
        return Refusal(reason=contract.REASON_UNSUPPORTED_MODEL, message=message)
    try:
        return _plan(spec, architecture)
    except OctavoError as error:
        return Refusal(reason=contract.REASON_INVALID_ARGUMENTS, message=str(error))


def plan_revision(spec: InferenceServiceSpec, config: Mapping[str, object]) -> MemoryPlan | Refusal:
    """The plan, if this release's engine can run on what it is for."""
    plan = plan_memory(spec, config)
    if isinstance(plan, Refusal) or spec.accelerator is None or DEVICE in contract.ENGINE_DEVICES:
        return plan
    message = (
        f"spec.accelerator: the engine computes on {' and '.join(contract.ENGINE_DEVICES)} alone so far. "
        f"The plan would be {plan.devices} × {plan.device} with {plan.kv_tokens} tokens of KV cache. "
        "Remove spec.accelerator to serve on CPUs"
    )
    return Refusal(reason="AcceleratorNotSupported", message=message)


def _plan(spec: InferenceServiceSpec, architecture: ModelArchitecture) -> MemoryPlan | Refusal:
    text = spec.resources.memory
    memory = parse_memory_bytes(text, field="spec.resources.memory") if text else None
    if spec.accelerator is None:
        plan = plan_cpu(architecture, build_workload(spec), memory_limit_bytes=memory)
    else:
        plan = _plan_devices(spec.accelerator, architecture, build_workload(spec), host_bytes=memory)
    return Refusal(reason=plan.reason, message=refusal_text(plan)) if isinstance(plan, Infeasible) else plan


def _plan_devices(
    asked: Accelerator, architecture: ModelArchitecture, workload: Workload, *, host_bytes: int | None
) -> MemoryPlan | Infeasible:
    plan = plan_accelerator(
        architecture,
        workload,
        accelerator=find_accelerator(asked.type),
        devices=asked.count or None,
        memory_percent=asked.memory_percent,
    )
    if isinstance(plan, Infeasible) or host_bytes is None:
        return plan
    return replace(plan, memory_request_bytes=host_bytes, memory_limit_bytes=host_bytes)


def refusal_text(plan: Infeasible) -> str:
    """Need and have in words, and every way out in the resource's own terms."""
    ways = [_in_terms_of_spec(way) for way in plan.ways_out]
    if plan.max_model_len_that_fits is not None and plan.need_bytes:
        ways.append("spec.engine.kvCache.oversizePolicy ShrinkContext")
    return f"{plan.message} Ways out: {'; '.join(ways)}." if ways else plan.message


def _in_terms_of_spec(way: str) -> str:
    """
    >>> _in_terms_of_spec("max_model_len 4096")
    'spec.engine.maxModelLen 4096'
    """
    named = {"max_model_len": "spec.engine.maxModelLen", "memory of": "spec.resources.memory of"}
    return next((way.replace(word, field) for word, field in named.items() if way.startswith(word)), way)


def summarize_plan(plan: MemoryPlan) -> MemoryPlanStatus:
    """What is kept and reported of a plan."""
    summary = _summarize(plan)
    numbers = summary.model_dump_json(by_alias=True, exclude={"notes", "plan_hash", "engine_reported_blocks"})
    digest = hashlib.sha256(numbers.encode()).hexdigest()[:PLAN_HASH_LENGTH]
    return summary.model_copy(update={"plan_hash": digest})


def _summarize(plan: MemoryPlan) -> MemoryPlanStatus:
    return MemoryPlanStatus(
        device=plan.device,
        devices=plan.devices,
        device_memory_bytes=plan.device_memory_bytes,
        weights_bytes=plan.weights_bytes,
        activation_bytes=plan.activation_bytes,
        runtime_bytes=plan.runtime_bytes,
        kv_bytes_per_token=plan.kv_bytes_per_token,
        kv_blocks=plan.kv_blocks,
        kv_tokens=plan.kv_tokens,
        full_length_sequences=plan.full_length_sequences,
        max_sequences=plan.max_num_seqs,
        max_model_len=plan.max_model_len,
        notes=tuple(note[:MAX_NOTE_LENGTH] for note in plan.notes[:MAX_NOTES]),
    )


def build_workload(spec: InferenceServiceSpec) -> Workload:
    engine = spec.engine
    return Workload(
        max_model_len=engine.max_model_len,
        max_num_batched_tokens=read_batched_tokens(engine.args),
        max_num_seqs=engine.max_sequences or None,
        for_sequences=engine.kv_cache.for_sequences or DEFAULT_FOR_SEQUENCES,
        kv_dtype=KV_DTYPE_FLAGS[engine.kv_cache.dtype],
        dtype=read_flag(engine.args, FLAG_DTYPE) or "auto",
        block_size=engine.kv_cache.block_tokens,
        context_policy="lower" if engine.kv_cache.oversize_policy == "ShrinkContext" else "refuse",
    )


def read_batched_tokens(args: tuple[str, ...]) -> int:
    text = read_flag(args, contract.FLAG_MAX_NUM_BATCHED_TOKENS)
    if text is None:
        return DEFAULT_BATCHED_TOKENS
    if not text.isdecimal():
        flag = contract.FLAG_MAX_NUM_BATCHED_TOKENS
        raise InvalidSpec(f"spec.engine.args: {flag} must be a whole number, got {text!r}")
    return int(text)


def read_flag(args: tuple[str, ...], flag: str) -> str | None:
    """The value that a flag has in a list of words; the last one counts.

    >>> read_flag(("--dtype", "float32", "--dtype=bfloat16"), "--dtype")
    'bfloat16'
    """
    value = None
    for word, following in pairwise((*args, "")):
        if word == flag:
            value = following
        elif word.startswith(f"{flag}="):
            value = word.partition("=")[2]
    return value
