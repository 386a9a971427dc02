"""A hub that refuses, fails, stalls, lies or goes away: a reason, or the right bytes, and never a hang."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from octavo import engine_contract as contract
from octavo_engine.fetching import hub_client
from octavo_engine.fetching.patience import Patience
from tests.octavo_engine.fetching.fetcher import FILES, REPO, WEIGHTS, Fetcher
from tests.support.model_hub import HubStore, ModelHub, Weather
from tests.support.model_hub.traffic import read_requests

TOKEN = "hf_secretsecretsecret"
PATIENT = Patience(first_seconds=0.05, most_seconds=0.1, limit_seconds=5)


def weights_requests(store: HubStore) -> list[str | None]:
    return [request.range for request in read_requests(store) if "model.safetensors" in request.path]


@contextmanager
def weather_for(store: HubStore, weather: Weather, seconds: float) -> Iterator[None]:
    """Bad weather that passes."""
    store.set_weather(weather)
    timer = threading.Timer(seconds, store.set_weather, [Weather()])
    timer.start()
    yield
    timer.cancel()


# What stays refused ------------------------------------------------------------------------------
def test_missing_repository_and_commit_are_told_apart(store: HubStore, fetcher: Fetcher) -> None:
    store.add_commit(REPO, FILES, message="one")
    assert fetcher.refused("0" * 40, "org/none").reason == contract.REASON_REPO_NOT_FOUND
    failure = fetcher.refused("0" * 40)
    assert failure.reason == contract.REASON_REVISION_NOT_FOUND
    assert "0" * 40 in str(failure)


def test_listed_file_that_is_not_there_is_told(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.hide(REPO, "model.safetensors")
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_FILE_MISSING
    assert "model.safetensors" in str(failure)


@pytest.mark.parametrize("path", ["model.safetensors", "tokenizer.json"])
def test_wrong_bytes_are_told_and_none_is_kept(store: HubStore, fetcher: Fetcher, path: str) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.corrupt(REPO, path)
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_DIGEST_MISMATCH
    assert path in str(failure)
    assert not (fetcher.folder / path).exists()
    store.heal(REPO)
    fetcher(commit)


def test_failure_does_not_wait_for_other_files(
    store: HubStore, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = store.add_commit(REPO, {**FILES, "model.safetensors": b"w" * 8_000_000}, message="one")
    store.hide(REPO, "config.json")
    store.set_weather(Weather(bytes_per_second=400_000))
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)
    started = time.monotonic()
    assert fetcher.refused(commit).reason == contract.REASON_FILE_MISSING
    assert time.monotonic() - started < 10


# Tokens ------------------------------------------------------------------------------------------
def test_gated_repository_is_told_with_where_a_token_goes(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.gate(REPO)
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_GATED
    assert "credentialsSecretRef" in str(failure)


def test_token_of_the_file_opens_a_gated_repository_and_may_be_renewed(
    store: HubStore, fetcher: Fetcher, tmp_path: Path
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.gate(REPO, token=TOKEN)
    fetcher.token_file = tmp_path / "token"
    fetcher.token_file.write_text("hf_old\n")
    assert fetcher.refused(commit).reason == contract.REASON_GATED
    fetcher.token_file.write_text(f"{TOKEN}\n")
    fetcher(commit)


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", b"with space", b"\xff\xfe", b"x" * 5000])
def test_token_that_cannot_be_one_is_refused_without_being_shown(
    store: HubStore, fetcher: Fetcher, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher.token_file = tmp_path / "token"
    fetcher.token_file.write_bytes(content)
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_GATED
    for word in content.decode(errors="ignore").split():
        assert word not in str(failure).split() + caplog.text.split()


def test_missing_token_file_is_told_with_the_key_that_the_secret_must_have(
    store: HubStore, fetcher: Fetcher, tmp_path: Path
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher.token_file = tmp_path / "token"
    assert "key token" in str(fetcher.refused(commit))


def test_token_is_not_sent_to_where_the_hub_redirects(
    store: HubStore, fetcher: Fetcher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    storage = HubStore(tmp_path / "storage")
    assert storage.add_commit(REPO, FILES, message="one") == commit
    fetcher.token_file = tmp_path / "token"
    fetcher.token_file.write_text(TOKEN)
    caplog.set_level(logging.DEBUG, "octavo_engine")
    with ModelHub(storage) as other:
        store.set_weather(Weather(redirect_to=other.endpoint))
        fetcher(commit)
    assert all(request.has_token for request in read_requests(store))
    assert read_requests(storage)
    assert not any(request.has_token for request in read_requests(storage))
    assert TOKEN not in caplog.text


def test_storage_that_refuses_is_told_without_the_signed_address(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.set_weather(Weather(redirect_to="http://127.0.0.1:9"))
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_HUB_UNAVAILABLE
    assert "secret" not in str(failure)


def test_redirects_without_end_are_no_answer(store: HubStore, fetcher: Fetcher, hub_server: ModelHub) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.set_weather(Weather(redirect_to=hub_server.endpoint))
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_HUB_UNAVAILABLE
    assert "secret" not in str(failure)


# What may pass -----------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_error_of_the_hub_is_unavailability_after_patience(
    store: HubStore, fetcher: Fetcher, status: int
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.set_weather(Weather(file_status=status))
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_HUB_UNAVAILABLE
    assert str(status) in str(failure)


@pytest.mark.parametrize("weather", [Weather(outage=True), Weather(file_status=502)])
def test_hub_that_comes_back_is_waited_for(store: HubStore, fetcher: Fetcher, weather: Weather) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher.patience = PATIENT
    with weather_for(store, weather, 0.5):
        fetcher(commit)
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert any("the hub answers 50" in trouble for trouble in fetcher.troubles)
    assert fetcher.troubles[-1] == "", "it is over, and nobody says so"


def test_hub_that_is_not_there_is_waited_for_until_it_is(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    with ModelHub(store) as gone:
        fetcher.server, port = gone, int(gone.endpoint.rpartition(":")[2])
    fetcher.patience = PATIENT
    came: list[ModelHub] = []
    late = threading.Timer(0.7, lambda: came.append(ModelHub(store, port=port).__enter__()))
    late.start()
    try:
        fetcher(commit)
    finally:
        late.join()
        came[0].__exit__(None, None, None)
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS


def test_nothing_listening_is_unavailability(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    with ModelHub(store) as gone:
        fetcher.server = gone
    assert fetcher.refused(commit).reason == contract.REASON_HUB_UNAVAILABLE


def test_hub_that_takes_connections_and_stays_silent_is_not_waited_for_without_end(
    store: HubStore, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client itself has no time limit for lists, and would wait for ever."""
    monkeypatch.setattr(hub_client, "SILENCE_SECONDS", 0.2)
    commit = store.add_commit(REPO, FILES, message="one")
    store.set_weather(Weather(delay_seconds=2))
    started = time.monotonic()
    failure = fetcher.refused(commit)
    assert failure.reason == contract.REASON_HUB_UNAVAILABLE
    assert time.monotonic() - started < 10


def test_connection_that_breaks_in_the_middle_is_gone_on_with(
    store: HubStore, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 50_000)
    commit = store.add_commit(REPO, FILES, message="one")
    store.set_weather(Weather(drop_after_bytes=150_000))
    fetcher(commit)
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS
    ranges = weights_requests(store)
    assert ranges[0] is None
    starts = [int(range_.removeprefix("bytes=").rstrip("-")) for range_ in ranges[1:] if range_]
    assert len(starts) >= 4
    assert starts == sorted(starts)
    assert starts[0] > 0


def test_patience_is_renewed_by_new_bytes_and_not_by_attempts(
    store: HubStore, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gives up on the first broken connection here, so that every attempt is ours."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)
    monkeypatch.setattr("octavo_engine.fetching.hub.http_get", without_its_own_retries())
    commit = store.add_commit(REPO, FILES, message="one")
    store.set_weather(Weather(drop_after_bytes=60_000))
    fetcher(commit)
    assert len(weights_requests(store)) > 8
    fetcher.folder = fetcher.folder.parent / "other"
    store.set_weather(Weather(drop_after_bytes=0))
    assert fetcher.refused(commit).reason == contract.REASON_HUB_UNAVAILABLE


def without_its_own_retries():
    from huggingface_hub.file_download import http_get

    def get(*args, **kwargs):
        return http_get(*args, **kwargs, _nb_retries=0)

    return get


def test_hub_that_ignores_ranges_gives_the_right_bytes_all_the_same(
    store: HubStore, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 50_000)
    commit = store.add_commit(REPO, FILES, message="one")
    with weather_for(store, Weather(drop_after_bytes=150_000, ignore_ranges=True), 0.5):
        fetcher.patience = PATIENT
        fetcher(commit)
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS


def test_slow_hub_is_only_slow(store: HubStore, fetcher: Fetcher) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    store.set_weather(Weather(bytes_per_second=1_000_000, delay_seconds=0.05))
    fetcher(commit)
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS


def test_file_larger_than_the_client_begins_is_fetched(
    store: HubStore, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.MAX_HTTP_DOWNLOAD_SIZE", 1000)
    monkeypatch.setattr("octavo_engine.fetching.hub.MAX_EXPECTED_BYTES", 1000)
    fetcher(store.add_commit(REPO, FILES, message="one"))
    assert (fetcher.folder / "model.safetensors").read_bytes() == WEIGHTS
