"""From a hub to the first token, and what becomes of a model whose files are not whole."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from octavo_engine.cli.main import main
from octavo_engine.fetching.download import INCOMING
from octavo_engine.fetching.hub import Hub
from octavo_engine.models.weight_files import INDEX_FILE, SINGLE_FILE
from tests.octavo_engine.fetching.fetcher import QUICK, REPO
from tests.octavo_engine.server.tiny_model import write_tiny_model
from tests.support.model_hub import HubStore, ModelHub, Weather

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
SMALL = ("--memory-limit", "4Gi", "--max-num-seqs", "2", "--max-num-batched-tokens", "16")


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in two files and an index."""
    folder = write_tiny_model(tmp_path_factory.mktemp("sharded"))
    tensors = load_file(folder / SINGLE_FILE)
    names = sorted(tensors)
    weight_map = {name: FIRST if number % 2 else SECOND for number, name in enumerate(names)}
    for file in (FIRST, SECOND):
        part = {name: tensors[name] for name in names if weight_map[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": weight_map}))
    (folder / SINGLE_FILE).unlink()
    return folder


class Warmer:
    """Runs the command on one folder, with and without where to fetch from."""

    def __init__(self, folder: Path, commit: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.commit, self.capsys = folder, commit, capsys

    def __call__(self, *more: str) -> tuple[int, str]:
        code = main(["warm", "--model", str(self.folder), *SMALL, *more])
        told = self.capsys.readouterr()
        return code, told.out or told.err

    def fetching(self) -> tuple[int, str]:
        return self("--uri", f"hf://{REPO}", "--revision", self.commit)


@pytest.fixture
def warmer(
    store: HubStore,
    hub_server: ModelHub,
    sharded: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Warmer:
    commit = store.add_commit(REPO, {path.name: path for path in sharded.iterdir()}, message="one")
    here = partial(Hub, endpoint=hub_server.endpoint, patience=QUICK)  # HF_ENDPOINT is read at import
    monkeypatch.setattr("octavo_engine.fetching.bring.Hub", here)
    return Warmer(tmp_path / "models" / "one", commit, capsys)


def test_warm_fetches_and_makes_a_token_and_needs_no_hub_again(store: HubStore, warmer: Warmer) -> None:
    code, told = warmer.fetching()
    assert code == 0, told
    facts = json.loads(told)
    assert (facts["repository"], facts["revision"]) == (REPO, warmer.commit)
    store.set_weather(Weather(outage=True))
    code, again = warmer.fetching()
    assert code == 0, again
    assert json.loads(again)["token_id"] == facts["token_id"]
    assert json.loads(again)["manifest_digest"] == facts["manifest_digest"]


@pytest.mark.parametrize("damage", ["gone", "cut", "empty config"])
def test_damaged_model_is_not_served_and_mends_without_anybody_cleaning_up(
    warmer: Warmer, damage: str
) -> None:
    assert warmer.fetching()[0] == 0
    name = "config.json" if damage == "empty config" else SECOND
    path = warmer.folder / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 0 if damage == "empty config" else 1000])
    code, told = warmer()
    assert code != 0
    assert name in told
    code, told = warmer.fetching()
    assert code == 0, told


def test_shard_that_an_interrupted_fetch_left_out_is_named_and_then_fetched(
    warmer: Warmer, sharded: Path
) -> None:
    (warmer.folder / INCOMING).mkdir(parents=True)
    for path in sharded.iterdir():
        if path.name != SECOND:
            (warmer.folder / path.name).write_bytes(path.read_bytes())
    code, told = warmer()
    assert code != 0
    assert SECOND in told
    code, told = warmer.fetching()
    assert code == 0, told
