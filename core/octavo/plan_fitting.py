"""What both kinds of plan share: the terms of a stage, and the context that they let fit.

A context that does not fit is lowered, and the plan says so, or refused with both numbers: by default
one that was not set is lowered, and one set by hand is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from octavo.architecture import ModelArchitecture
from octavo.kv_groups import build_layout, elements_of, named_padding
from octavo.kv_sizing import kv_bytes_per_token
from octavo.plan_terms import Terms, longest_context, sequences_in
from octavo.plan_values import Infeasible, Workload
from octavo.units import format_bytes
from octavo.weights import stage_weights_bytes

LEAST_CONTEXT: Final = 256
"""A context below this serves nobody; a plan that could offer no more is a no."""
DEFAULT_CONTEXT: Final = 2048
"""For a model that states no longest context."""


def stage_terms(
    arch: ModelArchitecture,
    workload: Workload,
    *,
    device: str,
    max_num_seqs: int,
    tensor_parallel: int = 1,
    layers: range | None = None,
) -> Terms:
    """What does not depend on how much memory there is, for one stage."""
    elements = elements_of(
        arch, kv_dtype=workload.kv_dtype, dtype=workload.dtype, tensor_parallel=tensor_parallel
    )
    chosen = layers if layers is not None else range(arch.num_layers)
    layout = build_layout(arch, elements, block_size=workload.block_size, layers=chosen)
    context = workload.max_model_len or arch.max_position_embeddings or DEFAULT_CONTEXT
    notes = (
        *arch.notes,
        *named_padding(layout),
        *_uneven_heads(arch, tensor_parallel),
        *_assumed_context(arch, workload),
    )
    return Terms(
        device=device,
        weights=stage_weights_bytes(arch, chosen, dtype=workload.dtype, tensor_parallel=tensor_parallel),
        layout=layout,
        bytes_per_token=kv_bytes_per_token(
            arch, kv_dtype=workload.kv_dtype, dtype=workload.dtype, tensor_parallel=tensor_parallel
        ),
        max_num_seqs=max_num_seqs,
        chunk=workload.max_num_batched_tokens,
        context=context,
        model_context=arch.max_position_embeddings or context,
        lengths=workload.lengths,
        tensor_parallel=tensor_parallel,
        notes=notes,
    )


def _uneven_heads(arch: ModelArchitecture, tensor_parallel: int) -> tuple[str, ...]:
    notes = []
    if arch.num_attention_heads % tensor_parallel:
        notes.append(f"Engines refuse to cut {arch.num_attention_heads} query heads {tensor_parallel} ways.")
    uneven = [n for n in arch.kv_head_counts if n % tensor_parallel and tensor_parallel % n]
    notes += [f"{heads} KV heads do not share out over {tensor_parallel} devices evenly." for heads in uneven]
    return tuple(notes)


def _assumed_context(arch: ModelArchitecture, workload: Workload) -> tuple[str, ...]:
    if arch.max_position_embeddings or workload.max_model_len:
        return ()
    return (f"The configuration states no longest context: {DEFAULT_CONTEXT} is assumed; set max_model_len.",)


def refuse_beyond_the_model(arch: ModelArchitecture, workload: Workload) -> Infeasible | None:
    """A context longer than the model was made for is refused whatever the memory."""
    limit, asked = arch.max_position_embeddings, workload.max_model_len
    if not asked or not limit or asked <= limit:
        return None
    return Infeasible(
        reason="ContextTooLong",
        message=f"max_model_len {asked} is beyond the model's own {limit} positions; ask for those.",
        need_bytes=0,
        have_bytes=0,
        max_model_len_that_fits=limit,
        ways_out=(f"max_model_len {limit}",),
    )


def fit_context(
    terms: Terms, workload: Workload, budget: int, have: int, *, need: Callable[[Terms], int]
) -> Terms | Infeasible:
    """The terms with a context that fits, lowered where the workload lets it."""
    if sequences_in(terms, budget, terms.context) >= 1:
        return terms
    fits = longest_context(terms, budget, terms.context)
    if fits < min(LEAST_CONTEXT, terms.context):
        asked = workload.max_model_len or min(LEAST_CONTEXT, terms.context)
        return _no_memory(terms, asked, need(replace(terms, context=asked)), have)
    if not _may_lower(workload):
        return _context_too_long(terms, need(terms), have, fits)
    whose = "the model's" if workload.max_model_len is None else "the wanted"
    note = (
        f"max_model_len is lowered from {whose} {terms.context} to {fits}: "
        f"the KV cache has {format_bytes(budget)}."
    )
    return replace(terms, context=fits, notes=(*terms.notes, note))


def _may_lower(workload: Workload) -> bool:
    if workload.context_policy == "lower-unset":
        return workload.max_model_len is None
    return workload.context_policy == "lower"


def _no_memory(terms: Terms, context: int, need: int, have: int) -> Infeasible:
    return Infeasible(
        reason="InsufficientMemory",
        message=(
            f"{format_bytes(terms.weights)} of weights, {format_bytes(terms.activation)} for one step and "
            f"{format_bytes(terms.runtime)} of runtime need at least {format_bytes(need)} on each device "
            f"with a KV cache of {context} tokens; there are {format_bytes(have)}."
        ),
        need_bytes=need,
        have_bytes=have,
        max_model_len_that_fits=None,
        ways_out=(),
    )


def _context_too_long(terms: Terms, need: int, have: int, fits: int) -> Infeasible:
    return Infeasible(
        reason="ContextTooLong",
        message=(
            f"One sequence of {terms.context} tokens needs {format_bytes(need)} in all; there are "
            f"{format_bytes(have)}, which hold {fits} tokens. Lower max_model_len or give more memory."
        ),
        need_bytes=need,
        have_bytes=have,
        max_model_len_that_fits=fits,
        ways_out=(f"max_model_len {fits}",),
    )
