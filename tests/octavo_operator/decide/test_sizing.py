"""The memory plan of a revision: spec and config.json in; a plan, or a no with numbers and ways out."""

from __future__ import annotations

import pytest

from octavo.planning import MemoryPlan
from octavo_operator.decide.sizing import plan_memory, plan_revision, read_flag, summarize_plan
from octavo_operator.decide.target import Refusal
from tests.octavo_operator.builders import CONFIG, make_plan, make_spec

LLAMA_70B = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def test_plan_is_made_from_config_and_spec() -> None:
    plan = plan_memory(make_spec(engine={"maxModelLen": 512, "maxSequences": 3}), CONFIG)
    assert isinstance(plan, MemoryPlan)
    assert (plan.max_model_len, plan.max_num_seqs, plan.block_size) == (512, 3, 16)


def test_plan_reads_the_users_flags() -> None:
    plain = plan_memory(make_spec(), CONFIG)
    wide = plan_memory(
        make_spec(engine={"args": ["--max-num-batched-tokens=4096", "--dtype", "float32"]}), CONFIG
    )
    assert isinstance(plain, MemoryPlan)
    assert isinstance(wide, MemoryPlan)
    assert wide.activation_bytes > plain.activation_bytes
    assert wide.weights_bytes == 2 * plain.weights_bytes


@pytest.mark.parametrize(
    ("sections", "config", "reason"),
    [
        pytest.param({}, {**CONFIG, "hidden_size": "many"}, "InvalidConfig", id="malformed"),
        pytest.param({}, {**CONFIG, "model_type": "abacus"}, "UnsupportedModel", id="unknown architecture"),
        pytest.param({"resources": {"memory": "64Mi"}}, CONFIG, "InsufficientMemory", id="no memory"),
        pytest.param({"engine": {"maxModelLen": 4096}}, CONFIG, "ContextTooLong", id="too long"),
        pytest.param(
            {"engine": {"args": ["--max-num-batched-tokens", "x"]}}, CONFIG, "InvalidArguments", id="flag"
        ),
        pytest.param({"engine": {"args": ["--dtype=octonion"]}}, CONFIG, "InvalidArguments", id="dtype"),
    ],
)
def test_plan_is_refused(sections: dict[str, object], config: dict[str, object], reason: str) -> None:
    refusal = plan_memory(make_spec(**sections), config)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.lasting) == (reason, True)
    assert refusal.message


@pytest.mark.parametrize(
    ("args", "value"),
    [((), None), (("--x",), ""), (("--x", "1"), "1"), (("--x=1", "--x=2"), "2"), (("--xy=1",), None)],
)
def test_flag_is_read(args: tuple[str, ...], value: str | None) -> None:
    assert read_flag(args, "--x") == value


def refusal_of(config: dict[str, object], **sections: object) -> Refusal:
    refusal = plan_memory(make_spec(**sections), config)
    assert isinstance(refusal, Refusal)
    return refusal


def test_context_that_does_not_fit_is_refused_with_its_ways_out_when_nothing_else_was_asked() -> None:
    refusal = refusal_of(CONFIG | {"max_position_embeddings": 2**20}, resources={"memory": "2300Mi"})
    assert refusal.reason == "ContextTooLong"
    assert "spec.engine.maxModelLen" in refusal.message
    assert "ShrinkContext" in refusal.message
    assert "spec.resources.memory of at least" in refusal.message


@pytest.mark.parametrize("asked", [None, 2**20], ids=["the model's own", "by hand"])
def test_context_is_lowered_when_the_policy_lets_it(asked: int | None) -> None:
    engine: dict[str, object] = {"kvCache": {"oversizePolicy": "ShrinkContext"}}
    plan = plan_memory(
        make_spec(engine=engine | ({"maxModelLen": asked} if asked else {}), resources={"memory": "2300Mi"}),
        CONFIG | {"max_position_embeddings": 2**20},
    )
    assert isinstance(plan, MemoryPlan)
    assert plan.max_model_len < 2**20
    assert any("is lowered" in note for note in plan.notes)


def test_devices_are_counted_by_the_plan_when_spec_leaves_them_open() -> None:
    """70.6 billion weights in two bytes are 132 GiB: more than one device of 80 GiB, and than two."""
    plan = plan_memory(make_spec(accelerator={"type": "H100-80GB"}, engine={"maxModelLen": 16384}), LLAMA_70B)
    assert isinstance(plan, MemoryPlan)
    assert (plan.device, plan.devices, plan.tensor_parallel) == ("H100-80GB", 4, 4)
    assert summarize_plan(plan).devices == 4


def test_devices_that_cannot_hold_the_model_are_refused_with_the_number_that_can() -> None:
    refusal = refusal_of(
        LLAMA_70B, accelerator={"type": "H100-80GB", "count": 1}, engine={"maxModelLen": 16384}
    )
    assert refusal.reason == "InsufficientMemory"
    assert "4 × H100-80GB" in refusal.message


def test_device_that_the_engine_cannot_use_is_refused_before_any_pod() -> None:
    spec = make_spec(accelerator={"type": "H100-80GB"}, engine={"maxModelLen": 16384})
    refusal = plan_revision(spec, LLAMA_70B)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.lasting) == ("AcceleratorNotSupported", True)
    assert "4 × H100-80GB" in refusal.message
    assert "Remove spec.accelerator" in refusal.message
    plain = make_spec(engine={"maxModelLen": 512})
    assert plan_revision(plain, CONFIG) == plan_memory(plain, CONFIG)


def test_memory_of_the_host_is_what_spec_says_when_there_are_devices() -> None:
    spec = make_spec(
        accelerator={"type": "H100-80GB", "count": 4},
        engine={"maxModelLen": 16384},
        resources={"memory": "32Gi"},
    )
    plan = plan_memory(spec, LLAMA_70B)
    assert isinstance(plan, MemoryPlan)
    assert plan.memory_limit_bytes == 32 * 2**30


def test_plan_hash_tells_plans_apart_by_their_numbers_alone() -> None:
    first = summarize_plan(make_plan())
    assert first.plan_hash == summarize_plan(make_plan(notes=("other words",))).plan_hash
    assert first.plan_hash != summarize_plan(make_plan(kv_blocks=245)).plan_hash


LLAMA_8B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
BYTES_PER_TOKEN = 2 * 32 * 8 * 128 * 2
"""Keys and values, layers, heads, head's size, bfloat16: 128 KiB."""


def test_context_that_memory_cannot_hold_is_refused_with_both_numbers_and_the_field() -> None:
    refusal = refusal_of(LLAMA_8B, engine={"maxModelLen": 131072}, resources={"memory": "24Gi"})
    assert refusal.reason == "ContextTooLong"
    assert refusal.lasting
    assert "131072" in refusal.message
    assert "spec.engine.maxModelLen" in refusal.message
    assert "ShrinkContext" in refusal.message


def test_context_is_lowered_to_exactly_what_the_memory_holds() -> None:
    """No token more than the KV cache has bytes for, none less than whole blocks."""
    spec = make_spec(
        engine={"kvCache": {"oversizePolicy": "ShrinkContext", "dtype": "BFloat16"}},
        resources={"memory": "24Gi"},
    )
    plan = plan_memory(spec, LLAMA_8B)
    assert isinstance(plan, MemoryPlan)
    fixed = plan.weights_bytes + plan.activation_bytes + plan.runtime_bytes + plan.headroom_bytes
    tokens = (24 * 2**30 - fixed) // BYTES_PER_TOKEN
    assert plan.kv_bytes_per_token == BYTES_PER_TOKEN
    assert plan.kv_tokens == tokens // 16 * 16 < 131072
    assert plan.max_model_len <= plan.kv_tokens
    assert any(str(plan.max_model_len) in note and "131072" in note for note in plan.notes)
