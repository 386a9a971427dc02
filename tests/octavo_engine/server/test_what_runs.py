"""What the engine says of itself: the same in the start log, at /version, as metrics and by `warm`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo import engine_contract as contract
from octavo.model_files import ModelFile
from octavo_engine.cli.main import main
from octavo_engine.fetching.manifest import build_manifest, stamp_files, write_record
from octavo_engine.what_runs import Identity, ServedFile
from tests.octavo_engine.oracle import load_engine, save_tiny_model
from tests.octavo_engine.server.running_server import REVISION, RunningServer
from tests.octavo_engine.server.tiny_model import tiny_server, write_tiny_model

FILES = (
    ServedFile(path="config.json", size=7, digest="git-sha1:1"),
    ServedFile(path="model.safetensors", size=8, digest="sha256:2"),
)
DIGEST = f"sha256:{'9' * 64}"
IDENTITY = Identity(
    model_name="m", revision=REVISION, manifest_digest="sha256:3", version="1", repository="a/b", files=FILES
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    options = {"identity": IDENTITY}
    with tiny_server(folder, num_kv_blocks=32, kv_cache_dtype="bf16", options=options) as running:
        yield running


def test_version_says_what_really_runs(server: RunningServer) -> None:
    said = server.http.get("/version").json()
    assert (said["repository"], said["revision"], said["manifest_digest"]) == ("a/b", REVISION, "sha256:3")
    assert said["files"] == [
        {"path": "config.json", "size": 7, "digest": "git-sha1:1"},
        {"path": "model.safetensors", "size": 8, "digest": "sha256:2"},
    ]
    assert (said["device"], said["dtype"], said["kv_dtype"]) == ("cpu", "float32", "bfloat16")
    assert (said["num_kv_blocks"], said["kv_blocks_bound"]) == (32, "the number asked for")
    # The model's own context is 512; 32 blocks of 16 hold as much.
    assert (said["context_len"], said["max_model_len"], said["max_num_seqs"]) == (512, 512, 8)
    assert (said["max_num_batched_tokens"], said["max_waiting"]) == (512, 1024)
    assert said["prefix_caching"] is True
    assert said["speed"]["read_bytes_per_second"] > 0


def test_metrics_name_the_kernels_of_each_kind_of_layer(server: RunningServer) -> None:
    labels = {"path": "torch-reference", "reason": "this version has no compiled kernels"}
    assert server.metric(contract.KERNEL_LAYERS, kind="full attention", **labels) == 4
    assert server.metric(contract.KERNEL_LAYERS, kind="dense MLP", **labels) == 4
    info = {"revision": REVISION, "manifest_digest": "sha256:3", "kv_dtype": "bfloat16", "dtype": "float32"}
    assert server.metric(contract.ENGINE_INFO, kernel_path="torch-reference", device="cpu", **info) == 1


@pytest.mark.parametrize(
    ("config_class", "changes", "kinds"),
    [
        pytest.param("MixtralConfig", {"num_local_experts": 4}, {"experts": 4}, id="experts"),
        pytest.param(
            "Gemma3TextConfig",
            {"head_dim": 16, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
            {"sliding attention": 3, "full attention": 1},
            id="windows",
        ),
        pytest.param(
            "Llama4TextConfig",
            {"num_local_experts": 2, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 64},
            {"chunked attention": 3, "full attention": 1, "experts": 2, "dense MLP": 2},
            id="chunks",
        ),
    ],
)
def test_kinds_of_layers_are_counted(
    tmp_path: Path, config_class: str, changes: dict[str, Any], kinds: dict[str, int]
) -> None:
    facts = load_engine(save_tiny_model(tmp_path, config_class, **changes)).facts
    counted = {kernels.kind: kernels.num_layers for kernels in facts.kernels}
    assert kinds.items() <= counted.items()
    assert sum(counted.values()) == 2 * 4  # attention and feed-forward part of each layer
    assert all(kernels.path and kernels.reason for kernels in facts.kernels)


def test_start_log_has_the_record_and_a_line_for_each_kind(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, logger="octavo_engine"),
        tiny_server(folder, options={"identity": IDENTITY}) as running,
    ):
        said = running.http.get("/version").json()
    (start,) = [record for record in caplog.records if record.getMessage().startswith("serving ")]
    assert json.loads(json.dumps(vars(start)["runs"])) == said
    assert "float32, KV float32; 64 blocks of 16 tokens" in start.getMessage()
    assert "2 files verified" in start.getMessage()
    lines = [record.getMessage() for record in caplog.records]
    reason = "(this version has no compiled kernels)"
    assert f"kernels: full attention in 4 layers by torch-reference {reason}" in lines
    assert f"kernels: dense MLP in 4 layers by torch-reference {reason}" in lines


@pytest.fixture
def record_files(folder: Path) -> Iterator[Callable[[], str]]:
    """Write the record of a fetch beside the model, and give its digest."""

    def write() -> str:
        size = (folder / "config.json").stat().st_size
        entry = ModelFile(path="config.json", size=size, digest=DIGEST)
        manifest = build_manifest("org/tiny", REVISION, [entry])
        write_record(folder, stamp_files(folder, manifest))
        return manifest.digest

    yield write
    for name in (contract.MANIFEST_FILE, contract.VERIFIED_FILE):
        (folder / name).unlink(missing_ok=True)


def test_warm_prints_the_record_of_a_fetched_folder(
    folder: Path, record_files: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    digest = record_files()
    assert main(["warm", "--model", str(folder), "--memory-limit", "2Gi"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["model"], said["repository"], said["revision"]) == ("org/tiny", "org/tiny", REVISION)
    assert said["manifest_digest"] == digest
    assert [file["digest"] for file in said["files"]] == [DIGEST]
    assert said["kernels"][0]["path"] == "torch-reference"
    assert said["dtype"] == "bfloat16"
    assert isinstance(said["token_id"], int)


def test_folder_without_a_record_is_said_to_be_unverified(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = Identity(model_name="m", revision="", manifest_digest="", version="1")
    with (
        caplog.at_level(logging.INFO, logger="octavo_engine"),
        tiny_server(folder, options={"identity": unknown}) as running,
    ):
        assert running.http.get("/version").json()["files"] == []
    assert any("revision unknown, files not verified" in record.getMessage() for record in caplog.records)
