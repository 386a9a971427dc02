"""What is read from configurations: spellings, nulls, windows, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.decoder_config import parse_decoder_config
from octavo_engine.models.rope_config import RopeConfig
from tests.octavo_engine.oracle import load_engine

BASE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 512,
}


def rope_of(**changes: object) -> RopeConfig:
    rope = parse_decoder_config({**BASE, **changes}).layers[0].rope
    assert rope is not None
    return rope


@pytest.mark.parametrize("absent", [{}, {"head_dim": None, "num_key_value_heads": None}])
def test_null_counts_as_absent(absent: dict[str, object]) -> None:
    config = parse_decoder_config({**BASE, **absent})
    assert (config.head_dim, config.num_kv_heads) == (16, 4)


def test_stated_head_size_wins_over_the_quotient() -> None:
    assert parse_decoder_config({**BASE, "head_dim": 128}).head_dim == 128


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_both_spellings_of_the_type_are_read(name: str) -> None:
    assert parse_decoder_config({**BASE, name: "bfloat16"}).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("stated", "read"), [("half", "float16"), ("torch.float32", "float32"), (None, "bfloat16")]
)
def test_type_is_read_as_the_plan_reads_it(stated: str | None, read: str) -> None:
    assert parse_decoder_config({**BASE, "torch_dtype": stated}).dtype == read


def test_smollm3_leaves_positions_out_of_every_fourth_layer_unless_it_lists_others() -> None:
    def turned(**changes: object) -> list[bool]:
        config = parse_decoder_config({**BASE, "model_type": "smollm3", **changes})
        return [layer.rope is not None for layer in config.layers]

    assert turned() == [True, True, True, False]
    assert turned(no_rope_layer_interval=2) == [True, False, True, False]
    assert turned(no_rope_layers=[0, 1, 1, 1]) == [False, True, True, True]


def test_llama4_has_chunks_where_it_has_positions_and_experts_where_it_says() -> None:
    llama4 = {"model_type": "llama4_text", "num_key_value_heads": 2}
    base = {**BASE, **llama4, "attention_chunk_size": 32, "no_rope_layers": []}
    config = parse_decoder_config({**base, "interleave_moe_layer_step": 2})
    assert [layer.window for layer in config.layers] == [32, 32, 32, None]
    assert [layer.experts is None for layer in config.layers] == [True, False, True, False]
    listed = parse_decoder_config({**base, "moe_layers": [0], "attention_chunk_size": None})
    assert [layer.window for layer in listed.layers] == [None] * 4
    assert [layer.experts is None for layer in listed.layers] == [False, True, True, True]


@pytest.mark.parametrize("name", ["type", "rope_type"])
def test_both_spellings_of_the_scaling_kind_mean_the_same(name: str) -> None:
    rope = rope_of(rope_scaling={name: "linear", "factor": 4.0}, rope_theta=500.0)
    assert (rope.kind, rope.theta, dict(rope.parameters)) == ("linear", 500.0, {"factor": 4.0})
    assert rope == rope_of(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0})


def test_su_is_longrope() -> None:
    assert rope_of(rope_scaling={"type": "su", "short_factor": [1.0] * 8}).kind == "longrope"


def test_no_scaling_is_plain_rotation() -> None:
    assert rope_of(rope_scaling=None).kind == rope_of().kind == "default"
    assert rope_of(rope_parameters={"rope_type": "default", "rope_theta": 7.0}).theta == 7.0


@pytest.mark.parametrize(
    ("scaling", "named"),
    [
        ({"factor": 2.0}, "neither rope_type nor type"),
        ({"rope_type": "spiral", "factor": 2.0}, "spiral"),
        ({"rope_type": "ntk", "factor": 2.0}, "ntk"),
        ("linear", "must be an object"),
    ],
)
def test_scaling_that_is_not_understood_is_refused_by_name(scaling: object, named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        parse_decoder_config({**BASE, "rope_scaling": scaling})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "mamba"}, "model_type: 'mamba'"),
        ({"rope_scaling": {"rope_type": "spiral"}}, "spiral"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "rope_scaling.low_freq_factor"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "rope_scaling.factor"),
    ],
)
def test_refusal_comes_before_any_weights_are_looked_for(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**BASE, **changes}))
    with pytest.raises(UnsupportedModel, match=named):
        load_engine(tmp_path)


def test_gemma3_turns_its_window_layers_by_another_base() -> None:
    config = parse_decoder_config(
        {
            **BASE,
            "model_type": "gemma3_text",
            "num_hidden_layers": 6,
            "sliding_window": 32,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        }
    )
    assert [layer.window for layer in config.layers] == [32] * 5 + [None]
    local, distant = config.layers[0].rope, config.layers[5].rope
    assert local is not None and distant is not None
    assert (local.kind, local.theta) == ("default", 1e4)
    assert (distant.kind, distant.theta) == ("linear", 1e6)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": None}, "hidden_size: missing"),
        ({"num_hidden_layers": "four"}, "num_hidden_layers"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
        ({"dtype": "float8"}, "float8"),
        ({"model_type": None}, "model_type"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 do not divide 4"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config: 'gptq'"),
        ({"model_type": "smollm3", "no_rope_layers": [1, 1]}, "no_rope_layers: 2 entries for 4"),
        ({"model_type": "llama4_text", "layer_types": ["sliding_attention"] * 4}, "sliding_attention"),
    ],
)
def test_field_that_cannot_be_served_is_refused_by_name(changes: dict[str, object], named: str) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        parse_decoder_config({**BASE, **changes})
