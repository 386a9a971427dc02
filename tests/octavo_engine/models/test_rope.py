"""Every kind of rotary embedding, over random numbers, against the formulas of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.decoder_config import parse_decoder_config
from octavo_engine.models.rope import FREQUENCIES
from octavo_engine.models.rope_config import parse_rope
from tests.octavo_engine.models.test_decoder_config import BASE

CONTEXT = 512
FACTORS = st.floats(1.0, 40.0)
ORIGINALS = st.sampled_from([64, 128, 512])


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


DETAILS = {
    "linear": st.fixed_dictionaries({"factor": FACTORS}),
    "dynamic": st.fixed_dictionaries({"factor": FACTORS}),
    "llama3": st.fixed_dictionaries(
        {
            "factor": FACTORS,
            "low_freq_factor": st.floats(0.5, 2.0),
            "high_freq_factor": st.floats(3.0, 8.0),
            "original_max_position_embeddings": ORIGINALS,
        }
    ),
    "yarn": st.fixed_dictionaries(
        {"factor": FACTORS, "original_max_position_embeddings": ORIGINALS},
        optional={
            "attention_factor": maybe(st.floats(0.5, 2.0)),
            "beta_fast": st.integers(16, 40),
            "beta_slow": st.integers(1, 4),
            "mscale": st.floats(0.5, 1.5),
            "mscale_all_dim": st.floats(0.5, 1.5),
            "truncate": st.booleans(),
        },
    ),
    "longrope": st.fixed_dictionaries(
        {"original_max_position_embeddings": ORIGINALS},
        optional={"attention_factor": maybe(st.floats(0.5, 2.0)), "factor": st.floats(1.0, 8.0)},
    ),
}


@pytest.mark.parametrize("kind", DETAILS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_frequencies_are_those_of_transformers(kind: str, data: st.DataObject) -> None:
    details = data.draw(DETAILS[kind])
    head_dim = data.draw(st.sampled_from([8, 16, 64, 128]))
    partial = data.draw(st.sampled_from([1.0, 0.5]))
    theta = data.draw(st.sampled_from([1e4, 5e5, 1e6]))
    length = data.draw(st.sampled_from([64, CONTEXT, 2048]))
    if kind == "longrope":
        numbers = st.lists(
            st.floats(1.0, 60.0), min_size=int(head_dim * partial) // 2, max_size=int(head_dim * partial) // 2
        )
        details = {**details, "short_factor": data.draw(numbers), "long_factor": data.draw(numbers)}
    parameters = {"rope_type": kind, "rope_theta": theta, "partial_rotary_factor": partial, **details}
    config = {"max_position_embeddings": CONTEXT, "head_dim": head_dim, "rope_parameters": parameters}
    theirs, their_factor = ROPE_INIT_FUNCTIONS[kind](
        LlamaConfig(num_attention_heads=2, hidden_size=2 * head_dim, **config),
        torch.device("cpu"),
        seq_len=length,
    )
    rope = parse_rope(config, head_dim=head_dim, layer_kind="full_attention")
    ours, our_factor = FREQUENCIES[kind](rope, length)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    assert our_factor == pytest.approx(their_factor, rel=1e-6)


def test_kinds_that_are_not_served_are_refused_by_name() -> None:
    for kind in set(ROPE_INIT_FUNCTIONS) - set(FREQUENCIES):
        with pytest.raises(UnsupportedModel, match=kind):
            parse_decoder_config({**BASE, "rope_scaling": {"rope_type": kind, "factor": 2.0}})


def test_odd_number_of_rotated_dimensions_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match=r"partial_rotary_factor: 3 of 16 dimensions"):
        parse_decoder_config({**BASE, "partial_rotary_factor": 0.2})
