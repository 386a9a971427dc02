"""The hub as its one client sees it: the real `huggingface_hub`, over loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile, RepoFolder

from tests.support.model_hub import HubStore, ModelHub, Weather
from tests.support.model_hub.store import git_blob_sha1
from tests.support.model_hub.traffic import read_requests

REPO = "octavo-tests/small"
WEIGHTS = bytes(range(256)) * 5000
FIRST: dict[str, Path | bytes] = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": WEIGHTS,
    "onnx/int8/model.bin": b"quantized",
    "onnx/note.txt": b"a note",
}


@pytest.fixture
def store(tmp_path: Path) -> HubStore:
    return HubStore(tmp_path / "hub")


@pytest.fixture
def commits(store: HubStore) -> tuple[str, str]:
    first = store.add_commit(REPO, FIRST, message="First")
    store.tag(REPO, "v1", first)
    second = store.add_commit(REPO, {**FIRST, "config.json": b"{}"}, message="Second")
    return first, second


@pytest.fixture
def hub(store: HubStore, commits: tuple[str, str]) -> Iterator[ModelHub]:
    with ModelHub(store, page_size=2) as hub:
        yield hub


@pytest.fixture
def api(hub: ModelHub) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=False)


def download(hub: ModelHub, path: str, folder: Path, revision: str = "main", repo: str = REPO) -> bytes:
    place = hf_hub_download(
        repo, path, revision=revision, endpoint=hub.endpoint, cache_dir=folder, token=False
    )
    return Path(place).read_bytes()


@pytest.mark.parametrize(
    ("revision", "index"),
    [
        pytest.param(None, 1, id="no revision is main"),
        pytest.param("main", 1, id="branch"),
        pytest.param("v1", 0, id="tag"),
    ],
)
def test_model_info_resolves_a_revision_to_its_commit(
    api: HfApi, commits: tuple[str, str], revision: str | None, index: int
) -> None:
    info = api.model_info(REPO, revision=revision)

    assert info.sha == commits[index]
    assert [sibling.rfilename for sibling in info.siblings or []] == sorted(FIRST)


def test_model_info_resolves_a_commit_to_itself(api: HfApi, commits: tuple[str, str]) -> None:
    assert api.model_info(REPO, revision=commits[0]).sha == commits[0]


def test_model_info_gives_sizes_and_digests_when_asked_for_blobs(api: HfApi) -> None:
    siblings = {
        one.rfilename: one for one in api.model_info(REPO, revision="v1", files_metadata=True).siblings or []
    }

    assert siblings["config.json"].blob_id == git_blob_sha1(b'{"model_type": "llama"}')
    assert siblings["config.json"].lfs is None
    lfs = siblings["model.safetensors"].lfs
    assert lfs is not None
    assert lfs.size == len(WEIGHTS)


def test_refs_list_branches_and_tags_with_their_commits(
    api: HfApi, store: HubStore, commits: tuple[str, str]
) -> None:
    store.set_branch(REPO, "fix/slash", commits[0])

    refs = api.list_repo_refs(REPO)

    assert {ref.name: ref.target_commit for ref in refs.branches} == {
        "main": commits[1],
        "fix/slash": commits[0],
    }
    assert {ref.name: ref.ref for ref in refs.tags} == {"v1": "refs/tags/v1"}


def test_branch_with_a_slash_is_a_revision_too(api: HfApi, store: HubStore, commits: tuple[str, str]) -> None:
    store.set_branch(REPO, "fix/slash", commits[0])

    assert api.model_info(REPO, revision="fix/slash").sha == commits[0]


def test_tree_lists_every_file_over_several_pages_when_recursive(api: HfApi) -> None:
    entries = list(api.list_repo_tree(REPO, recursive=True))

    assert [entry.path for entry in entries if isinstance(entry, RepoFile)] == sorted(FIRST)
    assert [entry.path for entry in entries if isinstance(entry, RepoFolder)] == ["onnx", "onnx/int8"]


def test_tree_lists_a_folder_alone_when_not_recursive(api: HfApi) -> None:
    assert [entry.path for entry in api.list_repo_tree(REPO, "onnx")] == ["onnx/int8", "onnx/note.txt"]


def test_paths_info_tells_of_the_asked_paths_that_exist(api: HfApi) -> None:
    assert [info.path for info in api.get_paths_info(REPO, ["config.json", "nowhere"])] == ["config.json"]


def test_commits_are_listed_newest_first(api: HfApi, commits: tuple[str, str]) -> None:
    assert [commit.commit_id for commit in api.list_repo_commits(REPO)] == [commits[1], commits[0]]


def test_commit_depends_on_content_alone(tmp_path: Path) -> None:
    made = [HubStore(tmp_path / name).add_commit(REPO, FIRST, message="First") for name in ("a", "b")]

    assert made[0] == made[1]
    assert HubStore(tmp_path / "c").add_commit(REPO, {**FIRST, "x": b""}, message="First") != made[0]


def test_download_gives_the_bytes_of_the_asked_commit(
    hub: ModelHub, commits: tuple[str, str], tmp_path: Path
) -> None:
    assert download(hub, "config.json", tmp_path, commits[0]) == FIRST["config.json"]
    assert download(hub, "config.json", tmp_path, "main") == b"{}"
    assert download(hub, "model.safetensors", tmp_path, commits[0]) == WEIGHTS


def test_snapshot_asks_for_every_file_at_the_commit_when_given_a_commit(
    hub: ModelHub, store: HubStore, commits: tuple[str, str], tmp_path: Path
) -> None:
    folder = snapshot_download(
        REPO, revision=commits[0], local_dir=tmp_path / "here", endpoint=hub.endpoint, token=False
    )

    assert {path: (Path(folder) / path).read_bytes() for path in FIRST} == FIRST
    asked = {request.file_revision for request in read_requests(store)} - {None}
    assert asked == {commits[0]}


def test_client_finds_the_hub_by_its_endpoint_variable(
    hub: ModelHub, commits: tuple[str, str], tmp_path: Path
) -> None:
    script = f"from huggingface_hub import HfApi; print(HfApi().model_info({REPO!r}).sha)"
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path)}

    printed = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout

    assert printed.strip() == commits[1]


def test_download_goes_on_where_it_stopped_when_a_part_is_there(
    hub: ModelHub, commits: tuple[str, str]
) -> None:
    url = f"{hub.endpoint}/{REPO}/resolve/{commits[0]}/model.safetensors"
    request = urllib.request.Request(url, headers={"Range": "bytes=1000000-"})

    with urllib.request.urlopen(request) as answer:
        assert answer.status == 206
        assert answer.headers["Content-Range"] == f"bytes 1000000-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"
        assert answer.read() == WEIGHTS[1000000:]


def test_range_past_the_end_is_refused(hub: ModelHub, commits: tuple[str, str]) -> None:
    url = f"{hub.endpoint}/{REPO}/resolve/{commits[0]}/config.json"

    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, headers={"Range": "bytes=999-"}))

    assert refused.value.code == 416


def test_unknown_repository_is_401_without_and_404_with_a_token(hub: ModelHub) -> None:
    for token, status in ((False, 401), ("hf_token", 404)):
        with pytest.raises(RepositoryNotFoundError) as refused:
            HfApi(endpoint=hub.endpoint, token=token).model_info("octavo-tests/nowhere")
        assert refused.value.response.status_code == status


def test_unknown_revision_is_named_as_such(api: HfApi, hub: ModelHub, tmp_path: Path) -> None:
    with pytest.raises(RevisionNotFoundError):
        api.model_info(REPO, revision="v9")
    with pytest.raises(RevisionNotFoundError):
        download(hub, "config.json", tmp_path, revision="0" * 40)


def test_unknown_file_is_named_as_such(hub: ModelHub, tmp_path: Path) -> None:
    with pytest.raises(EntryNotFoundError):
        download(hub, "nowhere.json", tmp_path)


def test_hidden_file_is_listed_and_not_served(
    api: HfApi, hub: ModelHub, store: HubStore, tmp_path: Path
) -> None:
    store.hide(REPO, "model.safetensors")

    assert "model.safetensors" in [entry.path for entry in api.list_repo_tree(REPO)]
    with pytest.raises(EntryNotFoundError):
        download(hub, "model.safetensors", tmp_path)


def test_corrupt_file_has_the_listed_length_and_other_bytes(
    hub: ModelHub, store: HubStore, tmp_path: Path
) -> None:
    store.corrupt(REPO, "model.safetensors")

    served = download(hub, "model.safetensors", tmp_path)

    assert len(served) == len(WEIGHTS)
    assert [at for at in range(len(WEIGHTS)) if served[at] != WEIGHTS[at]] == [0]


def test_gated_repository_is_listed_and_its_files_refused(
    api: HfApi, hub: ModelHub, store: HubStore, tmp_path: Path
) -> None:
    store.gate(REPO)

    assert api.model_info(REPO).gated == "manual"
    with pytest.raises(GatedRepoError):
        download(hub, "config.json", tmp_path)


def test_healed_repository_serves_again(hub: ModelHub, store: HubStore, tmp_path: Path) -> None:
    store.gate(REPO)
    store.heal(REPO)

    assert download(hub, "config.json", tmp_path) == b"{}"


def test_outage_is_503_until_the_weather_is_fair(api: HfApi, store: HubStore) -> None:
    store.set_weather(Weather(outage=True))
    with pytest.raises(HfHubHTTPError) as refused:
        api.model_info(REPO)
    store.set_weather(Weather())

    assert refused.value.response.status_code == 503
    assert api.model_info(REPO).sha


def test_slow_hub_takes_the_time_it_was_told_to(hub: ModelHub, store: HubStore, tmp_path: Path) -> None:
    store.set_weather(Weather(bytes_per_second=5_000_000))
    started = time.monotonic()

    download(hub, "model.safetensors", tmp_path)

    assert time.monotonic() - started > len(WEIGHTS) / 5_000_000


def test_log_tells_tokens_and_statuses(hub: ModelHub, store: HubStore) -> None:
    with pytest.raises(RepositoryNotFoundError):
        HfApi(endpoint=hub.endpoint, token="hf_token").model_info("octavo-tests/nowhere")

    last = read_requests(store)[-1]
    assert (last.path, last.status, last.has_token) == ("/api/models/octavo-tests/nowhere", 404, True)


def test_running_server_sees_what_another_process_commits(
    api: HfApi, store: HubStore, commits: tuple[str, str]
) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.support.model_hub import HubStore;"
        f"print(HubStore(Path(sys.argv[1])).add_commit({REPO!r}, {{'config.json': b'new'}}, message='Third'))"
    )
    third = subprocess.run(
        [sys.executable, "-c", script, str(store.root)], capture_output=True, text=True, check=True
    ).stdout.strip()

    assert api.model_info(REPO).sha == third


def test_many_readers_get_whole_answers_while_refs_move(
    api: HfApi, store: HubStore, commits: tuple[str, str]
) -> None:
    stop = threading.Event()

    def move() -> None:
        while not stop.is_set():
            for commit in commits:
                store.set_branch(REPO, "main", commit)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        seen = {api.model_info(REPO).sha for _ in range(40)}
    finally:
        stop.set()
        mover.join()
    assert seen <= set(commits)


def test_blob_is_kept_once_when_two_files_have_its_bytes(store: HubStore, commits: tuple[str, str]) -> None:
    store.add_commit("octavo-tests/other", {"weights.bin": WEIGHTS}, message="Same bytes")

    assert len(list((store.root / "blobs").iterdir())) == 5


def test_served_store_ends_on_a_signal(store: HubStore, commits: tuple[str, str]) -> None:
    command = [sys.executable, "-m", "tests.support.model_hub", "serve", "--store", str(store.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        endpoint = served.stdout.readline().split(" at ")[1].strip()
        assert HfApi(endpoint=endpoint, token=False).model_info(REPO).sha == commits[1]
        served.terminate()
        assert served.wait(timeout=10) == 0
