"""Laws of sizing that hold for every model: monotone, bounded, whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.accelerators import find_accelerator
from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.errors import InvalidSpec
from octavo.kv_groups import blocks_per_sequence, named_padding
from octavo.kv_sizing import (
    block_bytes,
    kv_bytes_per_token,
    kv_layout,
    sequence_bytes,
    state_bytes_per_sequence,
)
from octavo.planning import Infeasible, MemoryPlan, Workload, plan_accelerator, plan_cpu
from octavo.units import MIB
from octavo.weights import weights_bytes
from tests.octavo.kv_cases import CASES, config_of

ARCHITECTURES = {
    case_id: arch
    for case_id, case in CASES.items()
    if case["section"] == "A"
    and isinstance(arch := parse_architecture(config_of(case) or {}), ModelArchitecture)
}
REAL_MODELS = st.sampled_from(sorted(ARCHITECTURES)).map(ARCHITECTURES.__getitem__)
LENGTHS = st.integers(1, 300_000)
BLOCK_SIZES = st.sampled_from((1, 8, 16, 32, 128))
KV_DTYPES = st.sampled_from(("bf16", "fp8", "float32"))
UNHURRIED = settings(deadline=None)
"""A loaded machine must not fail a law."""
PARALLEL = st.sampled_from((1, 2, 3, 4, 8, 16))


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A small decoder, with windows or without."""
    kv_heads = draw(st.integers(1, 8))
    config: dict[str, Any] = {
        "model_type": draw(st.sampled_from(("llama", "mistral", "gemma2", "gemma3_text", "qwen3"))),
        "num_hidden_layers": draw(st.integers(1, 40)),
        "hidden_size": draw(st.integers(8, 64)) * 16,
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * draw(st.integers(1, 4)),
        "head_dim": draw(st.sampled_from((16, 64, 80, 128))),
        "intermediate_size": draw(st.integers(1, 5000)),
        "vocab_size": draw(st.integers(1, 50_000)),
        "max_position_embeddings": draw(st.integers(256, 100_000)),
        "sliding_window": draw(st.integers(1, 10_000)),
        "torch_dtype": "bfloat16",
    }
    return config


def parsed(config: dict[str, Any]) -> ModelArchitecture:
    arch = parse_architecture(config)
    assert isinstance(arch, ModelArchitecture)
    return arch


@UNHURRIED
@given(configs())
def test_sizes_grow_when_a_layer_is_added(config: dict[str, Any]) -> None:
    small, large = parsed(config), parsed({**config, "num_hidden_layers": config["num_hidden_layers"] + 1})
    assert kv_bytes_per_token(small, kv_dtype="bf16") < kv_bytes_per_token(large, kv_dtype="bf16")
    assert weights_bytes(small) < weights_bytes(large)


@UNHURRIED
@given(REAL_MODELS, LENGTHS, st.integers(0, 10_000), KV_DTYPES, BLOCK_SIZES)
def test_sequence_takes_no_less_when_it_is_longer(
    arch: ModelArchitecture, length: int, more: int, kv_dtype: str, block_size: int
) -> None:
    short = sequence_bytes(arch, length, kv_dtype=kv_dtype, block_size=block_size)
    long = sequence_bytes(arch, length + more, kv_dtype=kv_dtype, block_size=block_size)
    assert short.windowed <= long.windowed
    assert short.windowed_ideal <= long.windowed_ideal
    assert short.full <= long.full


@UNHURRIED
@given(REAL_MODELS, LENGTHS, KV_DTYPES, BLOCK_SIZES, PARALLEL)
def test_windowed_exceeds_full_only_by_rounding_and_by_padding_that_is_named(
    arch: ModelArchitecture, length: int, kv_dtype: str, block_size: int, parallel: int
) -> None:
    sizes = sequence_bytes(arch, length, kv_dtype=kv_dtype, block_size=block_size, tensor_parallel=parallel)
    layout = kv_layout(arch, kv_dtype=kv_dtype, block_size=block_size, tensor_parallel=parallel)
    assert sizes.windowed_ideal <= sizes.full
    assert sizes.windowed_ideal <= sizes.windowed
    groups = sum(kind.num_groups for kind in layout.kinds)
    rounding = groups * layout.block_bytes  # at most one block of each group is not full
    if sizes.windowed > sizes.full + rounding:
        assert named_padding(layout)


@UNHURRIED
@given(REAL_MODELS, LENGTHS, KV_DTYPES)
def test_windowed_is_full_but_for_its_last_block_when_all_layers_are_alike(
    arch: ModelArchitecture, length: int, kv_dtype: str
) -> None:
    layout = kv_layout(arch, kv_dtype=kv_dtype, block_size=16)
    if [kind.name for kind in layout.kinds] not in (["full"], ["latent"]):
        return
    sizes = sequence_bytes(arch, length, kv_dtype=kv_dtype)
    assert 0 <= sizes.windowed - sizes.full < layout.block_bytes


@UNHURRIED
@given(REAL_MODELS, KV_DTYPES, PARALLEL)
def test_devices_together_hold_at_least_the_whole(
    arch: ModelArchitecture, kv_dtype: str, parallel: int
) -> None:
    part = kv_bytes_per_token(arch, kv_dtype=kv_dtype, tensor_parallel=parallel)
    assert part * parallel >= kv_bytes_per_token(arch, kv_dtype=kv_dtype)
    assert weights_bytes(arch, tensor_parallel=parallel) * parallel >= weights_bytes(arch)
    state = state_bytes_per_sequence(arch, tensor_parallel=parallel)
    assert state * parallel >= state_bytes_per_sequence(arch)


@UNHURRIED
@given(REAL_MODELS, PARALLEL)
def test_device_holds_no_more_when_there_are_more(arch: ModelArchitecture, parallel: int) -> None:
    few = kv_bytes_per_token(arch, kv_dtype="bf16", tensor_parallel=parallel)
    many = kv_bytes_per_token(arch, kv_dtype="bf16", tensor_parallel=2 * parallel)
    assert many <= few
    assert weights_bytes(arch, tensor_parallel=2 * parallel) <= weights_bytes(arch, tensor_parallel=parallel)


@UNHURRIED
@given(REAL_MODELS, st.integers(1, 400_000), BLOCK_SIZES)
def test_pool_is_filled_to_the_last_block_when_memory_is_given(
    arch: ModelArchitecture, mebibytes: int, block_size: int
) -> None:
    workload = Workload(block_size=block_size)
    plan = plan_cpu(arch, workload, memory_limit_bytes=mebibytes * MIB)
    if isinstance(plan, Infeasible):
        assert plan.need_bytes > plan.have_bytes or plan.max_model_len_that_fits is not None
        return
    assert plan.kv_blocks * plan.block_bytes <= plan.kv_budget_bytes
    if plan.block_bytes:
        assert plan.kv_budget_bytes < (plan.kv_blocks + 1) * plan.block_bytes
    whole = plan.weights_bytes + plan.activation_bytes + plan.runtime_bytes
    assert whole + plan.headroom_bytes + plan.kv_budget_bytes == plan.memory_limit_bytes


@UNHURRIED
@given(REAL_MODELS, st.integers(1, 400_000), st.integers(0, 50_000))
def test_plan_holds_no_less_when_there_is_more_memory(
    arch: ModelArchitecture, mebibytes: int, more: int
) -> None:
    workload = Workload(lengths=(4096,))
    small = plan_cpu(arch, workload, memory_limit_bytes=mebibytes * MIB)
    large = plan_cpu(arch, workload, memory_limit_bytes=(mebibytes + more) * MIB)
    if isinstance(small, Infeasible):
        return
    assert isinstance(large, MemoryPlan)
    assert small.kv_blocks <= large.kv_blocks
    assert small.max_model_len <= large.max_model_len
    assert small.max_model_len_that_fits <= large.max_model_len_that_fits


@UNHURRIED
@given(REAL_MODELS, st.integers(1, 9))
def test_derived_memory_holds_the_sequences_it_was_derived_for(
    arch: ModelArchitecture, sequences: int
) -> None:
    plan = plan_cpu(arch, Workload(for_sequences=sequences), memory_limit_bytes=None)
    assert isinstance(plan, MemoryPlan)
    assert plan.full_length_sequences >= min(sequences, plan.max_num_seqs)
    assert plan.memory_limit_bytes % MIB == 0


@settings(deadline=None, max_examples=40)
@given(REAL_MODELS, st.sampled_from((1, 2, 4, 8)))
def test_refused_context_is_the_longest_that_fits(arch: ModelArchitecture, devices: int) -> None:
    accelerator = find_accelerator("H100-80GB")
    wanted = arch.max_position_embeddings or 8192
    try:
        answer = plan_accelerator(
            arch, Workload(max_model_len=wanted), accelerator=accelerator, devices=devices
        )
    except InvalidSpec:
        return
    if not isinstance(answer, Infeasible) or answer.max_model_len_that_fits is None:
        return
    fits = answer.max_model_len_that_fits
    again = plan_accelerator(arch, Workload(max_model_len=fits), accelerator=accelerator, devices=devices)
    beyond = plan_accelerator(
        arch, Workload(max_model_len=fits + 1), accelerator=accelerator, devices=devices
    )
    assert isinstance(again, MemoryPlan)
    assert isinstance(beyond, Infeasible)


@UNHURRIED
@given(REAL_MODELS, LENGTHS, BLOCK_SIZES)
def test_blocks_hold_the_tokens_that_a_query_sees(
    arch: ModelArchitecture, length: int, block_size: int
) -> None:
    layout = kv_layout(arch, kv_dtype="bf16", block_size=block_size)
    ideal = sequence_bytes(arch, length, kv_dtype="bf16", block_size=block_size).windowed_ideal
    assert blocks_per_sequence(layout, length) * layout.block_bytes >= ideal


@pytest.mark.parametrize(("block_size", "expected"), [(16, 2_097_152), (32, 4_194_304)])
def test_block_of_llama_8b_takes_what_anyone_can_compute(block_size: int, expected: int) -> None:
    assert block_bytes(ARCHITECTURES["A02"], kv_dtype="bf16", block_size=block_size) == expected
