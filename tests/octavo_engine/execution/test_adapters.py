"""LoRA adapters: each request's text is that of the merged model, whoever else is in the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.errors import InvalidSpec
from octavo_engine.llm_engine import LLMEngine
from octavo_engine.requests import REFUSED_ADAPTER, REFUSED_UNKNOWN_ADAPTER, EngineRequest
from tests.octavo_engine.lora import merged_oracle, save_adapter
from tests.octavo_engine.oracle import (
    count_near_ties,
    expect_short_outputs,
    generate,
    load_engine,
    load_oracle,
    oracle_greedy,
    random_prompts,
    request,
    run_until_idle,
    save_tiny_model,
    tokens_of,
)

NUM_TOKENS = 24
VOCAB_SIZE = 24
ADAPTERS = ("", "all", "some", "rooted")


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama")
    return save_tiny_model(folder, num_hidden_layers=2, vocab_size=VOCAB_SIZE, tie_word_embeddings=True)


@pytest.fixture(scope="module")
def folders(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    return {
        "all": save_adapter(root / "all", model_dir, seed=1),
        "some": save_adapter(root / "some", model_dir, seed=2, rank=2, targets=("v_proj", "up_proj")),
        "rooted": save_adapter(root / "rooted", model_dir, seed=3, rank=8, use_rslora=True),
    }


@pytest.fixture(scope="module")
def oracles(model_dir: Path, folders: dict[str, Path]) -> dict[str, Any]:
    merged = {name: merged_oracle(model_dir, folder) for name, folder in folders.items()}
    return {"": load_oracle(model_dir), **merged}


@pytest.fixture(scope="module")
def expected(oracles: dict[str, Any]) -> dict[tuple[str, tuple[int, ...]], list[int]]:
    """Of each adapter and prompt."""
    return {
        (name, prompt): oracle_greedy(oracle, prompt, NUM_TOKENS)
        for prompt in random_prompts(5, vocab_size=VOCAB_SIZE)
        for name, oracle in oracles.items()
    }


def adapting_engine(model_dir: Path, folders: dict[str, Path], **changes: Any) -> LLMEngine:
    settings: dict[str, Any] = {"adapters": tuple(folders.items()), "max_adapters": 3, **changes}
    return load_engine(model_dir, **settings)


def assert_as_merged(
    oracles: dict[str, Any], expected: dict[Any, list[int]], outputs: list[list[int]]
) -> None:
    near_ties = 0
    for ((name, prompt), tokens), output in zip(expected.items(), outputs, strict=True):
        if output != tokens:
            near_ties += count_near_ties(oracles[name], prompt, output)
    assert near_ties * 1000 < sum(map(len, outputs))


def requests_for(expected: dict[Any, list[int]]) -> list[EngineRequest]:
    return [
        request(str(index), prompt, NUM_TOKENS, adapter=name) for index, (name, prompt) in enumerate(expected)
    ]


def test_adapters_of_this_test_change_the_texts(expected: dict[Any, list[int]]) -> None:
    prompts = {prompt for _, prompt in expected}
    texts = {tuple(expected[name, prompt]) for name in ADAPTERS for prompt in prompts}
    assert len(texts) == len(expected)


@pytest.mark.parametrize("preempting", [False, True], ids=["undisturbed", "preempted at every step"])
@pytest.mark.parametrize("drafts", [0, 4], ids=["plain", "drafting"])
@pytest.mark.parametrize("chunk", [7, 64])
def test_text_is_the_merged_models_alone_and_beside_others(
    model_dir: Path,
    folders: dict[str, Path],
    oracles: dict[str, Any],
    expected: dict[Any, list[int]],
    chunk: int,
    drafts: int,
    preempting: bool,
) -> None:
    engine = adapting_engine(model_dir, folders, max_num_batched_tokens=chunk, speculative_ngram=drafts)
    asked = requests_for(expected)
    alone = [output for one in asked[::3] for output in generate(engine, [one], preempting=preempting)]
    assert_as_merged(oracles, dict(list(expected.items())[::3]), alone)
    assert_as_merged(oracles, expected, generate(engine, asked, preempting=preempting))
    assert engine.stats().cached_prompt_tokens > 0
    assert engine.stats().blocks_referenced == 0
    assert (engine.stats().preemptions > 0) == preempting


def test_text_is_the_merged_models_when_the_pool_makes_sequences_give_way(
    model_dir: Path, folders: dict[str, Path], oracles: dict[str, Any], expected: dict[Any, list[int]]
) -> None:
    engine = adapting_engine(model_dir, folders, num_kv_blocks=8, max_num_batched_tokens=7)
    expect_short_outputs(engine)
    assert_as_merged(oracles, expected, generate(engine, requests_for(expected)))
    assert engine.stats().preemptions > 0


@pytest.mark.parametrize(
    ("config_class", "changes", "targets"),
    [
        pytest.param("Qwen2Config", {}, ("q_proj", "k_proj", "down_proj"), id="qwen2 with biases"),
        pytest.param(
            "Phi3Config", {"sliding_window": None}, ("qkv_proj", "gate_up_proj", "o_proj"), id="phi3 fused"
        ),
        pytest.param("MixtralConfig", {"num_local_experts": 4}, ("q_proj", "v_proj"), id="mixtral attention"),
    ],
)
def test_text_is_the_merged_models_of_other_families(
    tmp_path: Path, config_class: str, changes: dict[str, Any], targets: tuple[str, ...]
) -> None:
    model_dir = save_tiny_model(tmp_path / "model", config_class, num_hidden_layers=2, **changes)
    folder = save_adapter(tmp_path / "adapter", model_dir, targets=targets)
    engine = load_engine(model_dir, adapters=(("x", folder),), max_adapters=1)
    prompts = random_prompts(3)
    for name, oracle in (("x", merged_oracle(model_dir, folder)), ("", load_oracle(model_dir))):
        asked = [request(f"{name}{i}", prompt, 8, adapter=name) for i, prompt in enumerate(prompts)]
        for prompt, output in zip(prompts, generate(engine, asked), strict=True):
            count_near_ties(oracle, prompt, output)


def test_sixteen_bit_adapters_follow_the_merged_model_mostly(
    model_dir: Path, folders: dict[str, Path], expected: dict[Any, list[int]]
) -> None:
    engine = adapting_engine(model_dir, folders, dtype="bfloat16")
    outputs = generate(engine, requests_for(expected))
    right = sum(output[0] == tokens[0] for output, tokens in zip(outputs, expected.values(), strict=True))
    assert right >= 0.8 * len(outputs)


# Cache identity -------------------------------------------------------------------------------------


def cached_tokens(engine: LLMEngine, name: str, prompt: tuple[int, ...], request_id: str) -> int:
    events = run_until_idle(engine, [request(request_id, prompt, 2, adapter=name)])
    return events[request_id][0].num_cached_tokens


def test_cached_prompts_are_shared_within_an_adapter_only(model_dir: Path, folders: dict[str, Path]) -> None:
    engine = adapting_engine(model_dir, folders)
    prompt = tuple(range(3, 20)) * 2
    assert [cached_tokens(engine, name, prompt, f"first {name}") for name in ADAPTERS] == [0] * 4
    assert [cached_tokens(engine, name, prompt, f"again {name}") for name in ADAPTERS] == [32] * 4


def test_adapter_under_an_old_name_finds_nothing_of_its_predecessor(
    model_dir: Path, folders: dict[str, Path], oracles: dict[str, Any], expected: dict[Any, list[int]]
) -> None:
    engine = adapting_engine(model_dir, {"x": folders["all"]})
    prompt = max((prompt for _, prompt in expected), key=len)
    for reloaded in ("some", "all"):
        cached_tokens(engine, "x", prompt, "warm")
        assert engine.unload_adapter("x") is None
        assert engine.load_adapter("x", folders[reloaded]) is None
        assert cached_tokens(engine, "x", prompt, "first") == 0
        [output] = generate(engine, [request("text", prompt, NUM_TOKENS, adapter="x")])
        count_near_ties(oracles[reloaded], prompt, output)


# Loading and unloading ------------------------------------------------------------------------------


def held_bytes(engine: LLMEngine) -> int:
    """Of adapters in the decoder's projections."""
    return sum(
        part.num_bytes
        for layer in engine._runner._model.layers
        for linear in (layer.attention.qkv, layer.attention.output, layer.mlp.gate_up, layer.mlp.down)
        for parts in linear.adaptation.parts.values()
        for _, part in parts
    )


def test_unknown_and_unloaded_names_are_refused(model_dir: Path, folders: dict[str, Path]) -> None:
    engine = adapting_engine(model_dir, folders)
    for name in ("nobody", "some"):
        assert engine.unload_adapter("some") is None or name == "some"
        refusal = engine.add_request(request("r", [5, 6], adapter=name))
        assert refusal is not None and refusal.reason == REFUSED_UNKNOWN_ADAPTER
    assert [adapter.name for adapter in engine.adapters] == ["all", "rooted"]
    assert not engine.has_work()
    refusal = engine.unload_adapter("some")
    assert refusal is not None and refusal.reason == REFUSED_UNKNOWN_ADAPTER


def test_unloaded_adapter_serves_what_it_has_and_then_gives_its_memory_back(
    model_dir: Path, folders: dict[str, Path], oracles: dict[str, Any]
) -> None:
    engine = adapting_engine(model_dir, {"all": folders["all"]}, max_adapters=1, max_num_seqs=1)
    prompt = (5, 6, 7)
    for name in ("running", "waiting", "aborted"):
        assert engine.add_request(request(name, prompt, NUM_TOKENS, adapter="all")) is None
    tokens = [token_id for event in engine.step(0.0) for token_id in event.token_ids]
    assert engine.unload_adapter("all") is None
    assert engine.adapters == ()
    refusal = engine.load_adapter("some", folders["some"])
    assert refusal is not None and "1 of them unloaded but in use" in refusal.message
    engine.abort("aborted")
    events: dict[str, list[int]] = {"running": tokens, "waiting": []}
    while engine.has_work():
        assert held_bytes(engine) > 0
        for event in engine.step(0.0):
            events[event.request_id].extend(event.token_ids)
    for output in events.values():
        assert len(output) == NUM_TOKENS
        count_near_ties(oracles["all"], prompt, output)
    assert held_bytes(engine) == 0
    assert engine.load_adapter("some", folders["some"]) is None
    assert held_bytes(engine) == engine.adapters[0].num_bytes > 0


def test_number_and_rank_of_adapters_are_bounded(model_dir: Path, folders: dict[str, Path]) -> None:
    engine = adapting_engine(model_dir, {"all": folders["all"]}, max_adapters=2, max_adapter_rank=4)
    facts = engine.facts
    query_and_output, key_and_value, mlp = 2 * (64 + 64), 2 * (64 + 32), 3 * (64 + 96)
    of_one = 2 * (query_and_output + key_and_value + mlp) * 4 * 4  # 2 layers, rank 4, 4 bytes
    assert facts.adapter_bytes == 2 * of_one
    assert held_bytes(engine) == engine.adapters[0].num_bytes == of_one
    refused = [
        engine.load_adapter("rooted", folders["rooted"]),
        engine.load_adapter("some", folders["some"]),
        engine.load_adapter("more", folders["some"]),
        engine.load_adapter("all", folders["all"]),
    ]
    assert refused[1] is None
    told = [refusal.message for refusal in refused if refusal is not None]
    assert [refusal.reason for refusal in refused if refusal] == [REFUSED_ADAPTER] * 3
    assert "r: 8 is above" in told[0] and "--max-lora-rank 8" in told[0]
    assert "--max-loras" in told[1]
    assert "loaded already" in told[2]


def test_room_for_adapters_comes_out_of_the_kv_cache(model_dir: Path, folders: dict[str, Path]) -> None:
    limits = {"num_kv_blocks": None, "memory_limit_bytes": 8 << 30, "max_adapter_rank": 512}
    engine = adapting_engine(model_dir, {}, max_adapters=64, **limits)
    plain = load_engine(model_dir, **{**limits, "max_adapter_rank": 16})
    lost = (plain.facts.measured_kv_blocks - engine.facts.measured_kv_blocks) * engine.facts.block_bytes
    assert engine.facts.adapter_bytes > 100 << 20
    assert lost == pytest.approx(engine.facts.adapter_bytes, rel=0.5)


def test_engine_without_adapters_has_no_places_for_them(model_dir: Path, folders: dict[str, Path]) -> None:
    engine = load_engine(model_dir)
    assert engine._runner._model.layers[0].attention.qkv.adaptation is None
    assert engine.facts.adapter_bytes == 0
    refusal = engine.load_adapter("all", folders["all"])
    assert refusal is not None and "room is kept for 0" in refusal.message


def test_sequence_that_fails_lets_go_of_its_adapter(model_dir: Path, folders: dict[str, Path]) -> None:
    engine = adapting_engine(model_dir, {"all": folders["all"]})
    with torch.inference_mode():
        for _, part in engine._runner._model.layers[0].mlp.down.adaptation.parts["1:all"]:
            part.up.fill_(torch.nan)
    asked = [request("bad", [5, 6], adapter="all"), request("good", [5, 6])]
    events = run_until_idle(engine, asked)
    assert events["bad"][-1].finish_reason == "error"
    assert len(tokens_of(events["good"])) == 16
    assert engine.unload_adapter("all") is None
    assert held_bytes(engine) == 0


def test_adapter_refused_at_start_stops_the_start(model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"'gone'.*adapter_config.json: missing"):
        adapting_engine(model_dir, {"gone": tmp_path / "gone"})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"adapters": (("a b", Path("x")),)}, "a name has"),
        ({"adapters": (("tiny", Path("x")),)}, "the model itself"),
        ({"adapters": (("x", Path("x")), ("x", Path("y")))}, "twice"),
        ({"adapters": (("x", Path("x")), ("y", Path("y"))), "max_adapters": 1}, "max_adapters: 2"),
        ({"max_adapters": -1}, "max_adapters"),
        ({"max_adapter_rank": 0}, "max_adapter_rank"),
    ],
)
def test_wrong_settings_are_named(model_dir: Path, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSpec, match=told):
        load_engine(model_dir, **{"max_adapters": 2, **settings})
