"""Plans by example: what fits where, and what is said when it does not."""

from __future__ import annotations

import pytest

from octavo.accelerators import ACCELERATORS, find_accelerator
from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.errors import InvalidSpec
from octavo.planning import Infeasible, MemoryPlan, Workload, alternatives, plan_accelerator, plan_cpu
from octavo.units import GIB, MIB
from tests.octavo.kv_cases import CASES, config_of

SMOLLM2 = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "vocab_size": 49152,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip


def model(case_id: str) -> ModelArchitecture:
    arch = parse_architecture(config_of(CASES[case_id]) or {})
    assert isinstance(arch, ModelArchitecture)
    return arch


def small() -> ModelArchitecture:
    arch = parse_architecture(SMOLLM2)
    assert isinstance(arch, ModelArchitecture)
    return arch


def feasible(answer: MemoryPlan | Infeasible) -> MemoryPlan:
    assert isinstance(answer, MemoryPlan), answer
    return answer


def refused(answer: MemoryPlan | Infeasible) -> Infeasible:
    assert isinstance(answer, Infeasible), answer
    return answer


def test_pod_holds_four_full_sequences_when_its_memory_is_derived() -> None:
    plan = feasible(plan_cpu(small(), Workload(), memory_limit_bytes=None))
    assert plan.full_length_sequences == 4
    assert plan.weights_bytes == 269_030_016
    assert plan.kv_bytes_per_token == 23_040
    assert plan.memory_request_bytes == plan.memory_limit_bytes
    assert 1 * GIB < plan.memory_limit_bytes < 2 * GIB


def test_context_is_lowered_and_said_when_it_was_not_set() -> None:
    plan = feasible(plan_cpu(small(), Workload(), memory_limit_bytes=800 * MIB))
    assert 256 <= plan.max_model_len < 8192
    assert plan.max_model_len_that_fits == plan.max_model_len
    assert any("lowered from the model's 8192" in note for note in plan.notes)


def test_context_is_refused_with_both_numbers_when_it_was_set_by_hand() -> None:
    refusal = refused(plan_cpu(small(), Workload(max_model_len=8192), memory_limit_bytes=800 * MIB))
    assert refusal.reason == "ContextTooLong"
    assert refusal.need_bytes > refusal.have_bytes == 800 * MIB
    assert refusal.max_model_len_that_fits is not None
    fits = refusal.max_model_len_that_fits
    assert refusal.ways_out[0] == f"max_model_len {fits}"
    again = Workload(max_model_len=fits)
    assert feasible(plan_cpu(small(), again, memory_limit_bytes=800 * MIB)).full_length_sequences == 1


def test_memory_named_as_need_is_enough() -> None:
    workload = Workload(max_model_len=8192)
    need = refused(plan_cpu(small(), workload, memory_limit_bytes=800 * MIB)).need_bytes
    assert isinstance(plan_cpu(small(), workload, memory_limit_bytes=need), MemoryPlan)


def test_memory_named_as_need_is_enough_when_not_even_the_smallest_cache_fits() -> None:
    workload = Workload(max_model_len=8192)
    need = refused(plan_cpu(small(), workload, memory_limit_bytes=300 * MIB)).need_bytes
    assert feasible(plan_cpu(small(), workload, memory_limit_bytes=need)).max_model_len == 8192


def test_memory_is_refused_when_it_is_nought() -> None:
    with pytest.raises(InvalidSpec, match="memory: must be at least one byte"):
        plan_cpu(small(), Workload(), memory_limit_bytes=0)


def test_context_that_fits_is_the_one_asked_for_when_the_model_states_none() -> None:
    plan = feasible(plan_cpu(model("A65"), Workload(max_model_len=1 << 20), memory_limit_bytes=None))
    assert plan.max_model_len_that_fits == plan.max_model_len == 1 << 20
    assumed = feasible(plan_cpu(model("A65"), Workload(), memory_limit_bytes=None))
    assert any("states no longest context: 2048 is assumed" in note for note in assumed.notes)


def test_weights_are_refused_when_they_do_not_fit_at_all() -> None:
    refusal = refused(plan_cpu(small(), Workload(), memory_limit_bytes=300 * MIB))
    assert refusal.reason == "InsufficientMemory"
    assert refusal.max_model_len_that_fits is None
    assert "257 MiB of weights" in refusal.message


def test_context_is_refused_when_the_model_was_not_made_for_it() -> None:
    refusal = refused(plan_cpu(small(), Workload(max_model_len=9000), memory_limit_bytes=None))
    assert refusal.reason == "ContextTooLong"
    assert refusal.max_model_len_that_fits == 8192


def test_float32_takes_twice_the_weights_and_the_cache() -> None:
    half = feasible(plan_cpu(small(), Workload(), memory_limit_bytes=None))
    full = feasible(plan_cpu(small(), Workload(dtype="float32"), memory_limit_bytes=None))
    assert full.weights_bytes == 2 * half.weights_bytes
    assert full.block_bytes == 2 * half.block_bytes


@pytest.mark.parametrize(
    ("case_id", "accelerator", "devices"),
    [
        pytest.param("A02", "H100-80GB", 1, id="8B on one"),
        pytest.param("A03", "H100-80GB", 4, id="70B with its whole context on four"),
        pytest.param("A46", "H200-141GB", 8, id="DeepSeek-V3 in FP8 on eight"),
        pytest.param("A37", "L4-24GB", 1, id="gpt-oss-20b in MXFP4 on a small one"),
    ],
)
def test_fewest_devices_are_found(case_id: str, accelerator: str, devices: int) -> None:
    answer = plan_accelerator(
        model(case_id),
        Workload(max_num_batched_tokens=2048),
        accelerator=find_accelerator(accelerator),
        devices=None,
    )
    plan = feasible(answer)
    assert plan.devices == devices
    assert plan.max_model_len == model(case_id).max_position_embeddings


def test_stage_with_the_least_room_decides_when_there_is_a_pipeline() -> None:
    plan = feasible(
        plan_accelerator(
            model("A03"),
            Workload(),
            accelerator=find_accelerator("H100-80GB"),
            devices=4,
            tensor_parallel=1,
        )
    )
    assert (plan.tensor_parallel, plan.pipeline_parallel) == (1, 4)
    assert plan.block_bytes == 16 * 327_680 // 4
    assert plan.weights_bytes > 70_553_706_496 * 2 // 4  # a stage with an embedding or the head


def test_context_of_a_pipeline_is_that_of_the_stage_with_the_least_room() -> None:
    plan = feasible(
        plan_accelerator(
            model("A03"), Workload(), accelerator=find_accelerator("A100-40GB"), devices=5, tensor_parallel=1
        )
    )
    assert plan.max_model_len == plan.max_model_len_that_fits < 131_072
    assert plan.full_length_sequences == plan.kv_tokens // plan.max_model_len == 1
    assert any("is lowered" in note for note in plan.notes)


def test_note_says_so_when_heads_do_not_share_out() -> None:
    plan = feasible(
        plan_accelerator(
            model("A02"), Workload(), accelerator=find_accelerator("H100-80GB"), devices=3, tensor_parallel=3
        )
    )
    assert any("Engines refuse to cut 32 query heads 3 ways" in note for note in plan.notes)
    assert any("8 KV heads do not share out over 3 devices" in note for note in plan.notes)


def test_refusal_offers_more_devices_and_a_smaller_cache() -> None:
    workload = Workload(max_model_len=131_072)
    refusal = refused(
        plan_accelerator(model("A89"), Workload(), accelerator=find_accelerator("T4-16GB"), devices=1)
    )
    assert any("T4-16GB" in way for way in refusal.ways_out)
    refusal = refused(
        plan_accelerator(model("A02"), workload, accelerator=find_accelerator("RTX3090-24GB"), devices=1)
    )
    assert refusal.ways_out[0].startswith("max_model_len ")
    assert "2 × RTX3090-24GB" in refusal.ways_out


def test_alternatives_hold_more() -> None:
    accelerator = find_accelerator("H100-80GB")
    plan = feasible(plan_accelerator(model("A02"), Workload(), accelerator=accelerator, devices=1))
    others = alternatives(model("A02"), Workload(), plan, accelerator=accelerator, percent=90)
    assert [other.change for other in others] == ["2 × H100-80GB", "FP8 KV cache"]
    assert all(other.kv_tokens > plan.kv_tokens for other in others)


def test_latent_cache_is_not_cut_by_tensor_parallelism() -> None:
    accelerator = find_accelerator("H200-141GB")
    plan = feasible(plan_accelerator(model("A46"), Workload(), accelerator=accelerator, devices=8))
    assert plan.tensor_parallel == 8
    assert plan.kv_bytes_per_token == 70_272


def test_model_without_attention_runs_as_many_sequences_as_its_states_allow() -> None:
    accelerator = find_accelerator("L4-24GB")
    plan = feasible(plan_accelerator(model("A65"), Workload(), accelerator=accelerator, devices=1))
    assert plan.kv_bytes_per_token == 0
    assert plan.block_bytes == 138_149_888
    assert plan.full_length_sequences == plan.kv_blocks


def test_windows_let_more_sequences_in() -> None:
    workload = Workload(lengths=(32_768,))
    plan = feasible(
        plan_accelerator(model("A36"), workload, accelerator=find_accelerator("H200-141GB"), devices=1)
    )
    assert plan.sequences_at[0].windowed > 5 * plan.sequences_at[0].full


@pytest.mark.parametrize("field", ["max_model_len", "max_num_batched_tokens", "block_size", "for_sequences"])
def test_workload_is_refused_when_a_number_is_not_positive(field: str) -> None:
    with pytest.raises(InvalidSpec, match=field):
        Workload(**{field: 0})


def test_accelerator_is_found_whatever_the_letter_case() -> None:
    assert find_accelerator("h100-80gb") is ACCELERATORS["H100-80GB"]


def test_accelerator_that_is_unknown_lists_the_known_ones() -> None:
    with pytest.raises(InvalidSpec, match="H100-80GB"):
        find_accelerator("abacus")


@pytest.mark.parametrize("row", ACCELERATORS.values(), ids=ACCELERATORS)
def test_accelerator_row_is_whole(row: object) -> None:
    assert row.source  # type: ignore[attr-defined]
    assert 10 * GIB < row.memory_bytes < 300 * GIB  # type: ignore[attr-defined]
    assert row.flops_bf16 > row.bandwidth_bytes_per_second > 10**11  # type: ignore[attr-defined]
