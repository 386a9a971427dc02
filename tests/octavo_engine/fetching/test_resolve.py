"""What a branch or tag means now: the commit and digest that fetching records, in a termination message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo import engine_contract as contract
from octavo.errors import InvalidConfig, InvalidSpec
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.fetch import fetch, parse_order, parse_uri
from octavo_engine.fetching.hub import Hub
from octavo_engine.fetching.resolve import (
    MAX_REPORT_BYTES,
    Resolution,
    architecture_numbers,
    inflated,
    resolve,
)
from tests.support.model_hub import HubStore, ModelHub

REPO = "org/model"
CONFIG = {
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
INDEX = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
FILES: dict[str, bytes | Path] = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "one.safetensors": b"1" * 1000,
    "two.safetensors": b"2" * 500,
    "old.safetensors": b"3" * 9999,
}


def test_branch_resolves_to_the_commit_and_digest_that_fetching_records(
    store: HubStore, hub_server: ModelHub, tmp_path: Path
) -> None:
    first = store.add_commit(REPO, FILES, message="one")
    store.tag(REPO, "v1", first)
    second = store.add_commit(REPO, {**FILES, "one.safetensors": b"9" * 1000}, message="two")
    resolved = {name: resolve(REPO, name, endpoint=hub_server.endpoint) for name in ("main", "v1", first)}
    assert [resolved[name].report["commit"] for name in ("main", "v1", first)] == [second, first, first]
    order = parse_order(f"hf://{REPO}", first, tmp_path / "model")
    fetched = fetch(order, Hub(REPO, first, endpoint=hub_server.endpoint))
    report = resolved["v1"].report
    assert report["manifest_digest"] == fetched.digest != resolved["main"].report["manifest_digest"]
    assert report["size_bytes"] == sum(file.size for file in fetched.files)
    assert report["num_files"] == 4
    assert report["architecture"]["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    assert inflated(report["config"]) == CONFIG


def test_missing_revision_and_repository_have_reasons(store: HubStore, hub_server: ModelHub) -> None:
    store.add_commit(REPO, FILES, message="one")
    for repository, revision, reason in (
        (REPO, "v9", contract.REASON_REVISION_NOT_FOUND),
        ("org/none", "main", contract.REASON_REPO_NOT_FOUND),
    ):
        with pytest.raises(FetchFailed) as caught:
            resolve(repository, revision, endpoint=hub_server.endpoint)
        assert caught.value.reason == reason


@pytest.mark.parametrize("content", [b"{", b"[]"])
def test_config_that_is_no_object_is_refused(store: HubStore, hub_server: ModelHub, content: bytes) -> None:
    store.add_commit(REPO, {"config.json": content, "model.safetensors": b"w"}, message="one")
    with pytest.raises(InvalidConfig, match=r"config\.json"):
        resolve(REPO, "main", endpoint=hub_server.endpoint)


def test_report_of_a_long_config_fits_a_termination_message(store: HubStore, hub_server: ModelHub) -> None:
    layers = [{"attention": {"n_heads_in_group": 4, "no_op": index % 7 == 0}} for index in range(300)]
    long = {**CONFIG, "block_configs": layers, "layer_types": ["full_attention", "sliding_attention"] * 60}
    assert len(json.dumps(long)) > 12_000
    store.add_commit(REPO, {**FILES, "config.json": json.dumps(long).encode()}, message="one")
    report = resolve(REPO, "main", endpoint=hub_server.endpoint).report
    assert len(json.dumps(report)) < MAX_REPORT_BYTES
    assert inflated(report["config"]) == long


def test_report_leaves_out_a_config_that_cannot_be_made_small(store: HubStore, hub_server: ModelHub) -> None:
    noise = {str(number): str(hash(str(number))) for number in range(2000)}
    store.add_commit(REPO, {**FILES, "config.json": json.dumps({**CONFIG, **noise}).encode()}, message="one")
    resolution: Resolution = resolve(REPO, "main", endpoint=hub_server.endpoint)
    assert "config" not in resolution.report
    assert len(json.dumps(resolution.report)) < MAX_REPORT_BYTES


def test_unknown_architecture_is_said() -> None:
    assert "unsupported" in architecture_numbers({"model_type": "never_heard_of"})


@pytest.mark.parametrize("uri", ["org/model", "hf://model", "hf://a/b/c", "s3://a/b"])
def test_uri_of_another_form_is_refused(uri: str) -> None:
    with pytest.raises(InvalidSpec, match="--uri"):
        parse_uri(uri)
