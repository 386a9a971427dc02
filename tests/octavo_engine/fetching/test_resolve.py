"""What a branch or tag, or the files on a volume, mean now: the commit and digest that a fetch records."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from octavo import engine_contract as contract
from octavo.errors import InvalidConfig
from octavo.model_report import decode_model_report, encode_model_report
from octavo.model_source import VolumeSource
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.progress import Progress
from octavo_engine.fetching.resolve import (
    MAX_CONFIG_BYTES,
    Resolution,
    architecture_numbers,
    resolve_at_hub,
    resolve_mounted,
)
from tests.octavo_engine.fetching.fetcher import REPO, Fetcher
from tests.support.model_hub import HubStore
from tests.support.model_hub.traffic import read_requests

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
SOURCE = VolumeSource(claim="models", path="")


def resolve_folder(folder: Path, revision: str = "main") -> Resolution:
    return resolve_mounted(SOURCE, "pvc://models", revision, folder, Progress(io.StringIO()))


def write(folder: Path, **changed: Any) -> Path:
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else b"")
    for name, content in changed.items():
        (folder / f"{name}.json").write_bytes(content)
    return folder


def test_branch_resolves_to_the_commit_and_digest_that_fetching_records(
    store: HubStore, fetcher: Fetcher
) -> None:
    first = store.add_commit(REPO, FILES, message="one")
    store.tag(REPO, "v1", first)
    second = store.add_commit(REPO, {**FILES, "one.safetensors": b"9" * 1000}, message="two")
    resolved = {name: resolve_at_hub(fetcher.hub(), name) for name in ("main", "v1", first)}
    assert [resolved[name].report.commit for name in ("main", "v1", first)] == [second, first, first]
    fetched = fetcher(first, manifest_digest=resolved["v1"].report.manifest_digest)
    report = resolved["v1"].report
    assert report.manifest_digest == fetched.digest != resolved["main"].report.manifest_digest
    assert report.size_bytes == sum(file.size for file in fetched.files)
    assert report.config == CONFIG
    facts = resolved["v1"].facts
    assert facts["num_files"] == 4
    assert facts["architecture"]["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    assert decode_model_report(encode_model_report(report)) == report


def test_resolving_reads_no_weights(store: HubStore, fetcher: Fetcher) -> None:
    store.add_commit(REPO, FILES, message="one")
    resolve_at_hub(fetcher.hub(), "main")
    asked = {request.path.rpartition("/")[2] for request in read_requests(store) if request.file_revision}
    assert asked == {"config.json", "model.safetensors.index.json"}


def test_missing_revision_and_repository_have_reasons(store: HubStore, fetcher: Fetcher) -> None:
    store.add_commit(REPO, FILES, message="one")
    for repository, revision, reason in (
        (REPO, "v9", contract.REASON_REVISION_NOT_FOUND),
        ("org/none", "main", contract.REASON_REPO_NOT_FOUND),
    ):
        with pytest.raises(FetchFailed) as caught:
            resolve_at_hub(fetcher.hub(repository), revision)
        assert caught.value.reason == reason


def test_gated_repository_resolves_with_the_token_only(
    store: HubStore, fetcher: Fetcher, tmp_path: Path
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.gate(REPO, token="hf_right")
    with pytest.raises(FetchFailed) as caught:
        resolve_at_hub(fetcher.hub(), "main")
    assert caught.value.reason == contract.REASON_GATED
    fetcher.token_file = tmp_path / "token"
    fetcher.token_file.write_text("hf_right")
    assert resolve_at_hub(fetcher.hub(), "main").report.commit == commit


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"", b"\xff", b"[" * 100_000, b" " * (MAX_CONFIG_BYTES + 1)]
)
def test_config_that_is_no_object_is_refused(
    store: HubStore, fetcher: Fetcher, tmp_path: Path, content: bytes
) -> None:
    store.add_commit(REPO, {"config.json": content, "model.safetensors": b"w"}, message="one")
    with pytest.raises(InvalidConfig, match=r"config\.json"):
        resolve_at_hub(fetcher.hub(), "main")
    with pytest.raises(InvalidConfig, match=r"config\.json"):
        resolve_folder(write(tmp_path, config=content))


def test_folder_resolves_to_its_manifest_digest(tmp_path: Path) -> None:
    resolution = resolve_folder(write(tmp_path))
    report = resolution.report
    assert report.commit == report.manifest_digest
    assert report.config == CONFIG
    assert report.size_bytes == resolution.manifest.num_bytes
    assert {file.path for file in resolution.manifest.files} == set(FILES) - {"old.safetensors"}
    assert resolve_folder(tmp_path, report.commit).report == report


def test_folder_that_is_not_what_is_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FetchFailed) as caught:
        resolve_folder(write(tmp_path), f"sha256:{'0' * 64}")
    assert caught.value.reason == contract.REASON_DIGEST_MISMATCH


def test_unknown_architecture_is_said() -> None:
    assert "unsupported" in architecture_numbers({"model_type": "never_heard_of"})
