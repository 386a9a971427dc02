"""The engine and the memory plan read the same layers out of one configuration, each with its own parser."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.layers import AttentionCache, Cache, LatentCache
from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.decoder_config import DecoderConfig, parse_decoder_config
from octavo_engine.models.family import FAMILIES
from tests.octavo.kv_cases import DATA


def published() -> dict[str, dict[str, Any]]:
    cases = json.loads((DATA / "kv_cases.json").read_text())
    return {f"{case['id']} {case['model']}": case["config"] for case in cases if case.get("config")}


def served() -> dict[str, tuple[DecoderConfig, ModelArchitecture]]:
    """Published configurations that this engine can run, and one of each type that states nothing."""
    configs = {
        **published(),
        **{f"bare {name}": {"model_type": name, "num_experts_per_tok": 2} for name in FAMILIES},
    }
    both: dict[str, tuple[DecoderConfig, ModelArchitecture]] = {}
    for name, config in configs.items():
        try:
            decoder = parse_decoder_config(config)
        except UnsupportedModel:
            continue
        architecture = parse_architecture(config)
        assert isinstance(architecture, ModelArchitecture), name
        both[name] = (decoder, architecture)
    return both


def caches_of(decoder: DecoderConfig) -> list[Cache]:
    if decoder.latent is not None:
        latent = LatentCache(latent_dim=decoder.latent.latent_dim, rope_dim=decoder.latent.rope_dim)
        return [latent] * len(decoder.layers)
    return [
        AttentionCache(
            num_kv_heads=decoder.num_kv_heads,
            key_dim=decoder.head_dim,
            value_dim=decoder.head_dim,
            window=layer.window,
            chunked=decoder.family.chunked_windows and layer.window is not None,
        )
        for layer in decoder.layers
    ]


BOTH = served()


@pytest.mark.parametrize("name", BOTH)
def test_layers_keep_what_the_plan_counts(name: str) -> None:
    decoder, architecture = BOTH[name]
    assert caches_of(decoder) == [cache for layer in architecture.layers for cache in layer.caches]
    assert decoder.vocab_size == architecture.vocab_size
    assert decoder.hidden_size == architecture.hidden_size
    assert decoder.max_position_embeddings == architecture.max_position_embeddings
    assert decoder.dtype == architecture.dtype


def test_published_configurations_of_many_types_are_compared() -> None:
    types = {decoder.model_type for name, (decoder, _) in BOTH.items() if not name.startswith("bare")}
    assert {"llama", "mistral", "qwen2", "gemma2", "gemma3_text", "llama4_text"} <= types
    assert set(FAMILIES) == {decoder.model_type for decoder, _ in BOTH.values()}
