"""What the engine takes, refuses and ends, on a tiny model."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import InvalidSpec
from octavo_engine.requests import (
    REFUSED_DUPLICATE_ID,
    REFUSED_INVALID,
    REFUSED_NEVER_FITS,
    REFUSED_QUEUE_FULL,
    REFUSED_TOO_LONG,
)
from tests.octavo_engine.oracle import (
    expect_short_outputs,
    generate,
    load_engine,
    request,
    run_until_idle,
    save_tiny_model,
    tokens_of,
)

PROMPT = tuple(range(20, 57))


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("llama"))


# Refusals --------------------------------------------------------------------------------------


def test_request_that_can_never_fit_is_refused_at_once_with_the_capacity(model_dir: Path) -> None:
    engine = load_engine(model_dir, num_kv_blocks=5)
    refusal = engine.add_request(request("long", [5] * 100, 8))
    assert refusal is not None and refusal.reason == REFUSED_NEVER_FITS
    assert "80 tokens" in refusal.message
    assert tokens_of(run_until_idle(engine, [request("short", [5] * 10, 8)])["short"])
    assert engine.stats().num_waiting == engine.stats().blocks_referenced == 0


@pytest.mark.parametrize("length", [79, 80, 81])
@pytest.mark.parametrize("num_tokens", [1, 2, 3])
def test_prompt_at_the_edge_of_the_pool_is_refused_or_served(
    model_dir: Path, length: int, num_tokens: int
) -> None:
    engine = load_engine(model_dir, num_kv_blocks=5)
    item = request("edge", [7] * length, num_tokens)
    if length + num_tokens - 1 <= 80:
        assert len(generate(engine, [item])[0]) == num_tokens
    else:
        refusal = engine.add_request(item)
        assert refusal is not None and refusal.reason == REFUSED_NEVER_FITS
        assert not engine.has_work()


def test_request_beyond_the_context_is_refused_with_all_three_numbers(model_dir: Path) -> None:
    engine = load_engine(model_dir, max_model_len=128)
    refusal = engine.add_request(request("long", [5] * 8, 125))
    assert refusal is not None and refusal.reason == REFUSED_TOO_LONG
    assert all(number in refusal.message for number in ("128", "8 prompt", "125 output"))
    assert engine.add_request(request("fits", [5] * 8, 120)) is None


@pytest.mark.parametrize("bad", [-1, 256, 2**31 - 1])
def test_token_id_outside_of_the_vocabulary_is_refused_in_prompt_and_bias(model_dir: Path, bad: int) -> None:
    engine = load_engine(model_dir)
    in_prompt = engine.add_request(request("prompt", [5, bad]))
    in_bias = engine.add_request(request("bias", [5], logit_bias={bad: 1.0}))
    assert in_prompt is not None and in_prompt.reason == REFUSED_INVALID and str(bad) in in_prompt.message
    assert in_bias is not None and "logit_bias" in in_bias.message


def test_empty_prompt_is_refused(model_dir: Path) -> None:
    refusal = load_engine(model_dir).add_request(request("empty", []))
    assert refusal is not None and refusal.reason == REFUSED_INVALID


def test_second_request_under_an_id_in_flight_is_refused_and_the_first_goes_on(model_dir: Path) -> None:
    engine = load_engine(model_dir)
    assert engine.add_request(request("same", PROMPT, 4)) is None
    refusal = engine.add_request(request("same", [9], 4))
    assert refusal is not None and refusal.reason == REFUSED_DUPLICATE_ID
    assert len(tokens_of([event for _ in range(6) for event in engine.step(0.0)])) == 4
    assert engine.add_request(request("same", [9], 4)) is None


def test_request_is_refused_when_too_many_wait(model_dir: Path) -> None:
    engine = load_engine(model_dir, max_waiting=2)
    assert engine.add_request(request("0", [5])) is None
    assert engine.add_request(request("1", [5])) is None
    refusal = engine.add_request(request("2", [5]))
    assert refusal is not None and refusal.reason == REFUSED_QUEUE_FULL


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", 1.5),
        ("logprobs", 21),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.5),
        ("min_tokens", 17),
        ("logit_bias", {3: 1000.0}),
    ],
)
def test_sampling_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidSpec, match=field):
        request("r", [5], **({"num_tokens": value} if field == "max_tokens" else {field: value}))


# Ends ------------------------------------------------------------------------------------------


def test_abort_between_two_chunks_of_a_prompt_gives_back_every_block(model_dir: Path) -> None:
    engine = load_engine(model_dir)
    prompt = [3 + index % 250 for index in range(400)]
    expected = generate(load_engine(model_dir), [request("fresh", prompt, 8)])[0]
    for repeat in range(50):
        engine.add_request(request(f"r{repeat}", prompt, 8))
        engine.step(0.0)
        engine.step(0.0)
        engine.abort(f"r{repeat}")
        engine.abort(f"r{repeat}")
        engine.check_integrity()
        assert not engine.has_work()
        assert engine.stats().blocks_referenced == engine.stats().num_running == 0
    assert generate(engine, [request("after", prompt, 8)])[0] == expected


def test_abort_of_a_waiting_request_leaves_the_others_alone(model_dir: Path) -> None:
    engine = load_engine(model_dir, max_num_seqs=1)
    alone = generate(engine, [request("alone", PROMPT, 6)])[0]
    engine.add_request(request("first", PROMPT, 6))
    engine.step(0.0)
    engine.add_request(request("second", [9, 9], 6))
    engine.abort("second")
    engine.abort("never heard of")
    events = []
    while engine.has_work():
        events += engine.step(0.0)
    assert [token for event in events for token in event.token_ids][-5:] == alone[-5:]
    assert engine.stats().num_waiting == 0


def test_end_ids_of_the_generation_config_end_the_text(model_dir: Path, tmp_path: Path) -> None:
    free = generate(load_engine(model_dir), [request("free", PROMPT, 12)])[0]
    end = free[4]
    first = free.index(end)
    for stated in (end, [2, end], [end, 255]):
        directory = tmp_path / str(stated)
        shutil.copytree(model_dir, directory)
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": stated}))
        engine = load_engine(directory)
        events = run_until_idle(engine, [request("r", PROMPT, 12, ignore_eos=False)])["r"]
        assert tokens_of(events) == free[: first + 1]
        assert events[-1].finish_reason == "stop"
        assert generate(engine, [request("on", PROMPT, 12)])[0] == free


def test_null_end_id_falls_back_to_the_config(model_dir: Path, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(model_dir, directory)
    (directory / "generation_config.json").write_text('{"eos_token_id": null}')
    assert load_engine(directory).facts.eos_token_ids == frozenset({2})


def test_stop_id_is_not_drawn_before_min_tokens(model_dir: Path) -> None:
    engine = load_engine(model_dir)
    free = generate(engine, [request("free", PROMPT, 12)])[0]
    stops = frozenset({free[0], free[1]})
    early = run_until_idle(engine, [request("early", PROMPT, 12, stop_token_ids=stops)])["early"]
    assert tokens_of(early) == free[:1] and early[-1].finish_reason == "stop"
    late = tokens_of(
        run_until_idle(engine, [request("late", PROMPT, 12, stop_token_ids=stops, min_tokens=5)])["late"]
    )
    assert len(late) >= 5 and not stops & set(late[:4])


def test_padded_ids_of_the_vocabulary_are_never_drawn(model_dir: Path, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    shutil.copytree(model_dir, directory)
    vocabulary = {f"t{index}": index for index in range(40)}
    tokenizer = {"model": {"vocab": vocabulary}, "added_tokens": [{"id": 42, "content": "<x>"}]}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    engine = load_engine(directory)
    assert engine.facts.vocab_size == 43
    outputs = generate(
        engine, [request("hot", [5, 6], 60, temperature=2.0, seed=1), request("cold", [5, 6], 60)]
    )
    assert max(map(max, outputs)) < 43


def test_scores_that_are_not_finite_end_one_request_and_no_other(model_dir: Path) -> None:
    engine = load_engine(model_dir)
    healthy = generate(engine, [request("alone", PROMPT, 6)])[0]
    engine._runner._model.embeddings[200] = math.inf  # a token whose activations overflow
    events = run_until_idle(engine, [request("ill", [200, 201], 6), request("well", PROMPT, 6)])
    assert [event.finish_reason for event in events["ill"]] == ["error"]
    assert events["ill"][0].error is not None and "not finite" in events["ill"][0].error
    assert len(tokens_of(events["well"])) == 6 and healthy
    assert engine.stats().failed_rows == 1 and engine.stats().blocks_referenced == 0


# Cache -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [16, 32, 48])
def test_prompt_of_whole_blocks_gives_the_same_text_when_all_of_it_is_cached(
    model_dir: Path, length: int
) -> None:
    engine = load_engine(model_dir)
    prompt = [3 + index for index in range(length)]
    runs = [run_until_idle(engine, [request("r", prompt, 20)])["r"] for _ in range(3)]
    assert tokens_of(runs[0]) == tokens_of(runs[1]) == tokens_of(runs[2])
    assert [run[0].num_cached_tokens for run in runs] == [0, length - 16, length - 16]
    longer = run_until_idle(engine, [request("longer", [*prompt, 99], 1)])["longer"]
    assert longer[0].num_cached_tokens == length


def test_requests_with_other_salts_do_not_share_cached_blocks(model_dir: Path) -> None:
    engine = load_engine(model_dir)
    hits = []
    for salt in ("A", "B", "A", "", ""):
        hits.append(run_until_idle(engine, [request("r", PROMPT, 4, salt=salt)])["r"][0].num_cached_tokens)
    assert hits == [0, 0, 32, 0, 32]


def test_second_of_two_equal_prompts_waits_a_step_and_hits(model_dir: Path) -> None:
    engine = load_engine(model_dir)
    events = run_until_idle(engine, [request("first", PROMPT, 4), request("second", PROMPT, 4)])
    assert tokens_of(events["first"]) == tokens_of(events["second"])
    assert events["second"][0].num_cached_tokens == 32


# Sampling in the engine ------------------------------------------------------------------------


def seeded(name: str, prompt: Any = PROMPT, **params: Any) -> Any:
    return request(name, prompt, 40, **{"temperature": 1.0, "seed": 11, **params})


def test_seeded_text_is_the_same_alone_and_among_others(model_dir: Path) -> None:
    alone = generate(load_engine(model_dir), [seeded("alone")])[0]
    engine = load_engine(model_dir, max_num_batched_tokens=7)
    others = [request(f"o{i}", [i + 3] * (i + 1), 20, temperature=float(i % 2)) for i in range(6)]
    among = generate(engine, [*others[:3], seeded("among"), *others[3:], seeded("other", seed=12)])
    assert among[3] == alone
    assert among[-1] != alone


def test_seeded_text_goes_on_after_a_preemption(model_dir: Path) -> None:
    prompts = [[3 + i] * (30 + 2 * i) for i in range(8)]
    requests = [seeded(f"r{i}", prompt, seed=i) for i, prompt in enumerate(prompts)]
    alone = [generate(load_engine(model_dir), [item])[0] for item in requests]
    engine = load_engine(model_dir, num_kv_blocks=24)
    expect_short_outputs(engine)
    assert generate(engine, requests) == alone
    assert engine.stats().preemptions > 0


def test_unseeded_requests_differ(model_dir: Path) -> None:
    engine = load_engine(model_dir)
    first, second = generate(engine, [seeded("a", seed=None), seeded("b", seed=None)])
    assert first != second


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("temperature", [1e-6, 1e-5, 1e-4, 1e-3])
def test_tiny_temperature_is_greedy_also_among_others(
    model_dir: Path, temperature: float, dtype: str
) -> None:
    engine = load_engine(model_dir, dtype=dtype)
    cold = generate(engine, [request("greedy", PROMPT, 7)])[0]
    mixed = run_until_idle(
        engine,
        [
            request("tiny", PROMPT, 7, temperature=temperature, seed=1, logprobs=3),
            request("greedy", PROMPT, 7),
            request("hot", PROMPT, 7, temperature=1.0, seed=1),
        ],
    )
    assert tokens_of(mixed["tiny"]) == tokens_of(mixed["greedy"]) == cold
    for event in mixed["tiny"]:
        assert len(event.logprobs[0].top) == 3
        assert all(math.isfinite(value) for _, value in event.logprobs[0].top)


def test_penalties_act_on_their_own_row_only(model_dir: Path) -> None:
    engine = load_engine(model_dir)
    penalized = request("p", PROMPT, 8, repetition_penalty=2.0)
    top_one = request("t", PROMPT, 8, temperature=1.0, top_k=1, seed=99)
    alone = [generate(engine, [penalized])[0], generate(engine, [top_one])[0]]
    assert generate(engine, [penalized, top_one]) == alone
    assert generate(engine, [top_one, penalized]) == alone[::-1]
    assert alone[1] == generate(engine, [request("g", PROMPT, 8)])[0]
    assert not set(alone[0]) & set(PROMPT) or alone[0] != alone[1]


# Sizes -----------------------------------------------------------------------------------------


def test_block_takes_the_bytes_that_the_planner_computes(model_dir: Path) -> None:
    from octavo.architecture import ModelArchitecture, parse_architecture
    from octavo.kv_sizing import block_bytes

    arch = parse_architecture(json.loads((model_dir / "config.json").read_text()))
    assert isinstance(arch, ModelArchitecture)
    facts = load_engine(model_dir).facts
    assert facts.block_bytes == block_bytes(arch, kv_dtype="float32", block_size=16)


def test_engine_measures_its_own_budget_and_takes_the_lesser_of_it_and_the_plan(model_dir: Path) -> None:
    free = load_engine(model_dir, num_kv_blocks=None, max_num_seqs=4).facts
    assert free.num_kv_blocks == min(free.measured_kv_blocks, 4 * 512 // 16)
    assert free.planned_kv_blocks is None
    planned = load_engine(model_dir, num_kv_blocks=None, planned_kv_blocks=9).facts
    assert (planned.num_kv_blocks, planned.planned_kv_blocks) == (9, 9)
    assert planned.measured_kv_blocks > 9
    assert planned.max_model_len == 9 * 16
