"""A resolver's report: whole within the kubelet's limit, read the same, and never trusted."""

from __future__ import annotations

import base64
import json
import random
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.errors import InvalidConfig, InvalidSpec
from octavo.model_report import (
    MAX_CONFIG_VALUES,
    MAX_REPORT_BYTES,
    ModelReport,
    decode_model_report,
    encode_model_report,
    needed_config,
    pack_config,
    unpack_config,
)
from tests.octavo.kv_cases import CASES, config_of

CONFIGS = {case_id: config for case_id, case in CASES.items() if (config := config_of(case)) is not None}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
repeating_lists = st.lists(st.sampled_from(["full", "sliding", 1, True, 1.0, None, [1], {"a": 0}]))


def report_of(config: dict[str, Any]) -> ModelReport:
    return ModelReport(
        commit="0123456789abcdef" * 2 + "01234567",
        manifest_digest=f"sha256:{'c0ffee01' * 8}",
        size_bytes=16_060_522_496,
        config=config,
    )


def round_trip(config: dict[str, Any]) -> ModelReport:
    text = encode_model_report(report_of(config))
    assert len(text.encode()) <= MAX_REPORT_BYTES
    report = decode_model_report(text)
    assert report is not None
    return report


def nemotron_config() -> dict[str, Any]:
    """One object per layer, as the hybrids that an architecture search made have: 12 kB of JSON."""
    layers = [
        {
            "attention": {
                "n_heads_in_group": None if index % 5 == 3 else 8,
                "no_op": index % 5 == 3,
                "num_sink_tokens": None,
                "replace_with_linear": False,
                "sparsify": None,
                "unshifted_sink": False,
                "use_prefill_window_in_sink_attention": False,
                "window_length": None,
            },
            "ffn": {"ffn_mult": (0.5, 1.0, 1.3125, 2.625, 5.25)[index * 7 % 5], "no_op": index % 11 == 10},
        }
        for index in range(49)
    ]
    return {**LLAMA, "model_type": "nemotron-nas", "num_hidden_layers": 49, "block_configs": layers}


@pytest.mark.parametrize("case_id", sorted(CONFIGS))
def test_report_reads_as_the_same_architecture_for_every_real_configuration(case_id: str) -> None:
    config = CONFIGS[case_id]
    sent = round_trip(config)
    assert parse_architecture(sent.config) == parse_architecture(config)
    assert sent == report_of(config)


@pytest.mark.parametrize("case_id", sorted(CONFIGS))
def test_needed_part_of_a_configuration_reads_as_the_same_architecture(case_id: str) -> None:
    config = {**CONFIGS[case_id], "id2label": {str(i): f"LABEL_{i}" for i in range(50)}}
    needed = needed_config(config)
    assert parse_architecture(needed) == parse_architecture(config)
    assert "id2label" not in needed


def test_report_holds_twelve_kilobytes_of_layers_whole() -> None:
    config = nemotron_config()
    assert len(json.dumps(config)) > 12_000
    assert round_trip(config).config == config


def test_report_leaves_out_what_is_not_read_when_a_file_is_too_long() -> None:
    noise = {f"extra_{number}": f"{random.Random(number).getrandbits(80):x}" for number in range(1000)}
    sent = round_trip({**noise, **LLAMA})
    assert parse_architecture(sent.config) == parse_architecture({**noise, **LLAMA})
    assert set(sent.config) <= set(LLAMA)


def test_report_keeps_a_field_that_makes_the_answer_doubtful() -> None:
    noise = {f"extra_{number}": f"{random.Random(number).getrandbits(80):x}" for number in range(1000)}
    sent = round_trip({**noise, **LLAMA, "kv_lora_rank": 512})
    architecture = parse_architecture(sent.config)
    assert isinstance(architecture, ModelArchitecture)
    assert any("kv_lora_rank=512" in note for note in architecture.notes)


def test_report_keeps_what_is_wrong_with_a_file_when_it_is_too_long() -> None:
    noise = {f"extra_{number}": f"{random.Random(number).getrandbits(80):x}" for number in range(1000)}
    config = round_trip({**noise, **LLAMA, "num_hidden_layers": "two"}).config
    with pytest.raises(InvalidConfig, match="num_hidden_layers"):
        parse_architecture(config)


def test_report_is_refused_when_even_the_needed_part_is_too_long() -> None:
    modules = [f"model.layers.{random.Random(n).getrandbits(90):x}" for n in range(800)]
    quantization = {"quant_method": "fp8", "ignored_layers": modules}
    with pytest.raises(InvalidConfig, match="4096"):
        encode_model_report(report_of({**LLAMA, "quantization_config": quantization}))


def test_report_is_refused_when_the_file_is_nested_too_deeply() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidConfig, match="deeply"):
        encode_model_report(report_of(deep))


@given(st.dictionaries(st.text(), json_values | repeating_lists))
@settings(max_examples=100, deadline=None)
def test_packed_configuration_comes_back_with_its_types(config: dict[str, Any]) -> None:
    back = unpack_config(pack_config(config))
    assert json.dumps(back) == json.dumps(config)


@given(st.text() | st.dictionaries(st.text(), json_values).map(json.dumps))
@settings(max_examples=100)
def test_foreign_text_is_no_report(text: str) -> None:
    assert decode_model_report(text) is None


@given(st.integers(min_value=0), st.data())
@settings(max_examples=300)
def test_damaged_report_is_none_or_the_same_configuration(seed: int, data: st.DataObject) -> None:
    """Deflate carries a checksum: a changed character never becomes another configuration."""
    text = encode_model_report(report_of(LLAMA))
    cut = data.draw(st.integers(min_value=0, max_value=len(text) - 1))
    assert decode_model_report(text[:cut]) is None
    damaged = text[:cut] + chr(33 + seed % 94) + text[cut + 1 :]
    report = decode_model_report(damaged)
    assert report is None or report.config == LLAMA


def raw_report(packed: str, **changed: object) -> str:
    fields = json.loads(encode_model_report(report_of(LLAMA)))
    return json.dumps({**fields, "config": packed, **changed})


def packed(content: bytes) -> str:
    return base64.b85encode(zlib.compress(content, level=9)).decode()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"a":"' + b"x" * 3_000_000 + b'"}', id="inflates to megabytes"),
        pytest.param(b'{"a":[1000000000,0]}', id="a run of a billion"),
        pytest.param(b'{"a":[99,[99,[99,[99,[99,[99,0]]]]]]}', id="runs of runs"),
        pytest.param(b'{"a":[-1,0]}', id="a run of less than nothing"),
        pytest.param(b'{"a":[1]}', id="a count without its value"),
        pytest.param(b'{"a":["b",0]}', id="a count that is no number"),
        pytest.param(b'{"a":[true,0]}', id="a count that is true"),
        pytest.param(b'{"a":' + b"[1," * 100_000 + b"0" + b"]" * 100_000 + b"}", id="nested without end"),
        pytest.param(b"[1,0]", id="no object"),
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b'{"a":' + b"9" * 10_000 + b"}", id="a number of ten thousand digits"),
    ],
)
def test_hostile_configuration_is_no_report_and_takes_no_memory(content: bytes) -> None:
    text = raw_report(packed(content))
    assert len(text) <= MAX_REPORT_BYTES
    tracemalloc.start()
    try:
        assert decode_model_report(text) is None
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"commit": "main"},
        {"commit": 7},
        {"manifest_digest": "sha256:12"},
        {"size_bytes": -1},
        {"size_bytes": True},
        {"size_bytes": 1 << 70},
        {"size_bytes": "1"},
        {"config": {}},
    ],
)
def test_report_with_a_field_that_cannot_be_is_none(changed: dict[str, object]) -> None:
    assert decode_model_report(raw_report(pack_config(LLAMA))) == report_of(LLAMA)
    assert decode_model_report(raw_report(pack_config(LLAMA), **changed)) is None


def test_longest_configuration_that_is_read_is_bounded() -> None:
    assert len(unpack_config(pack_config({"a": [0] * (MAX_CONFIG_VALUES - 2)}))["a"]) == MAX_CONFIG_VALUES - 2
    with pytest.raises(ValueError, match="values"):
        unpack_config(pack_config({"a": [0] * (MAX_CONFIG_VALUES - 1)}))


def test_report_with_a_tail_is_none() -> None:
    assert decode_model_report(encode_model_report(report_of(LLAMA)) + "x") is None


@pytest.mark.parametrize(
    "changed", [{"commit": "main"}, {"manifest_digest": "md5:1"}, {"size_bytes": -1}, {"size_bytes": 1 << 61}]
)
def test_report_that_cannot_be_is_not_made(changed: dict[str, Any]) -> None:
    right = report_of(LLAMA)
    fields = {name: getattr(right, name) for name in ("commit", "manifest_digest", "size_bytes", "config")}
    with pytest.raises(InvalidSpec, match=next(iter(changed))):
        ModelReport(**{**fields, **changed})
