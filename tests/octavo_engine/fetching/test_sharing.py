"""Several processes and one folder: one works, a dead one blocks nobody, the bytes are right in any case."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from octavo import engine_contract as contract
from octavo_engine.cli.termination import EXIT_CODES
from octavo_engine.fetching import folder_lock as lock_module
from octavo_engine.fetching.download import INCOMING
from octavo_engine.fetching.errors import FetchFailed
from octavo_engine.fetching.folder_lock import LOCK_FILE, folder_lock
from octavo_engine.fetching.manifest import check_folder
from tests.octavo_engine.fetching.fetcher import FILES, REPO, Fetcher, start_fetch
from tests.support.model_hub import HubStore, ModelHub, Weather
from tests.support.model_hub.traffic import forget_requests, read_requests

LARGE = bytes(range(256)) * 16_384  # 4 MiB
LARGE_FILES = {**FILES, "model.safetensors": LARGE}


def weights_requests(store: HubStore) -> list[str | None]:
    return [request.range for request in read_requests(store) if "model.safetensors" in request.path]


def wait_until(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def partial_bytes(folder: Path) -> int:
    """Of the files on their way; one that arrives while it is looked at is on its way no more."""
    incoming, num_bytes = folder / INCOMING, 0
    for path in incoming.iterdir() if incoming.is_dir() else ():
        with suppress(FileNotFoundError):
            num_bytes += path.stat().st_size
    return num_bytes


def end_of(process: subprocess.Popen[str]) -> str:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return errors


def test_two_processes_at_once_fetch_every_file_once(
    store: HubStore, hub_server: ModelHub, tmp_path: Path
) -> None:
    commit = store.add_commit(REPO, LARGE_FILES, message="one")
    store.set_weather(Weather(bytes_per_second=2_000_000))
    folder = tmp_path / "cache" / commit
    both = [start_fetch(hub_server, folder, commit) for _ in range(2)]
    errors = [end_of(process) for process in both]
    assert (folder / "model.safetensors").read_bytes() == LARGE
    assert check_folder(folder, commit) is not None
    assert weights_requests(store) == [None]
    assert sum("another process is fetching into it" in text for text in errors) == 1


def test_killed_fetch_blocks_nobody_and_its_part_is_gone_on_with(
    store: HubStore, hub_server: ModelHub, tmp_path: Path
) -> None:
    commit = store.add_commit(REPO, {**FILES, "model.safetensors": LARGE * 8}, message="one")
    store.set_weather(Weather(bytes_per_second=8_000_000))
    folder = tmp_path / "cache" / commit
    victim = start_fetch(hub_server, folder, commit)
    wait_until(lambda: partial_bytes(folder) > 1 << 20)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert not (folder / contract.VERIFIED_FILE).exists()
    store.set_weather(Weather())
    forget_requests(store)
    started = time.monotonic()
    end_of(start_fetch(hub_server, folder, commit))
    assert time.monotonic() - started < 45, "it waited for the dead one"
    assert (folder / "model.safetensors").read_bytes() == LARGE * 8
    (resumed_at,) = weights_requests(store)
    assert resumed_at is not None
    assert int(resumed_at.removeprefix("bytes=").rstrip("-")) > 0


def test_terminated_fetch_ends_at_once_and_tells(
    store: HubStore, hub_server: ModelHub, tmp_path: Path
) -> None:
    commit = store.add_commit(REPO, LARGE_FILES, message="one")
    store.set_weather(Weather(bytes_per_second=300_000))
    folder = tmp_path / "cache" / commit
    process = start_fetch(hub_server, folder, commit)
    wait_until(lambda: weights_requests(store) == [None])
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert time.monotonic() - started < 6


def test_holder_that_is_silent_is_not_waited_for(store: HubStore, fetcher: Fetcher, monkeypatch) -> None:
    """Its node may be lost, with the lease of its lock still running on the server."""
    monkeypatch.setattr(lock_module, "SILENCE_SECONDS", 0.3)
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher.folder.mkdir(parents=True)
    handle = os.open(fetcher.folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        fetcher(commit)
    finally:
        os.close(handle)
    assert check_folder(fetcher.folder, commit) is not None


def test_holder_that_gives_signs_of_life_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(lock_module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(lock_module, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(lock_module, "SILENCE_SECONDS", 0.4)
    order: list[str] = []
    inside = threading.Event()

    def hold() -> None:
        with folder_lock(tmp_path, tick=lambda: None):
            inside.set()
            time.sleep(1.2)
            order.append("first")

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    with folder_lock(tmp_path, tick=lambda: None):
        order.append("second")
    holder.join()
    assert order == ["first", "second"]


def test_volume_without_locks_is_fetched_to_all_the_same(
    store: HubStore, fetcher: Fetcher, monkeypatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    fetcher(store.add_commit(REPO, FILES, message="one"))
    assert "has no locks (No locks available)" in caplog.text


def test_two_that_do_not_see_each_others_locks_write_the_same_bytes(
    store: HubStore, hub_server: ModelHub, tmp_path: Path, monkeypatch
) -> None:
    """As on a network volume that is mounted with locks of each node for itself."""
    monkeypatch.setattr(fcntl, "flock", lambda handle, operation: None)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)
    commit = store.add_commit(REPO, {**LARGE_FILES, "config.json": b"{}" * 1000}, message="one")
    store.set_weather(Weather(bytes_per_second=4_000_000))
    folder = tmp_path / "cache" / commit
    failures: list[BaseException] = []

    def work(delay: float) -> None:
        time.sleep(delay)
        try:
            Fetcher(hub_server, folder)(commit)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(delay,)) for delay in (0.0, 0.3, 0.9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (folder / "model.safetensors").read_bytes() == LARGE
    assert check_folder(folder, commit) is not None


def test_full_disk_in_the_middle_is_told_with_need_and_have_and_gone_on_from(
    store: HubStore, hub_server: ModelHub, small_volume: Path
) -> None:
    """Another writer takes the room between the first look and the last byte."""
    commit = store.add_commit(REPO, LARGE_FILES, message="one")
    store.set_weather(Weather(bytes_per_second=4_000_000))
    folder = small_volume / commit
    log = small_volume.parent / "termination-log"
    log.touch()
    process = start_fetch(hub_server, folder, commit, OCTAVO_TERMINATION_LOG=str(log))
    wait_until(lambda: weights_requests(store) == [None])
    (small_volume / "hog").write_bytes(bytes(3 << 20))
    process.communicate(timeout=60)
    assert process.returncode == EXIT_CODES[contract.REASON_DISK_FULL]
    message = log.read_text()
    assert contract.REASON_DISK_FULL in message
    assert "MiB are still to fetch and" in message
    (small_volume / "hog").unlink()
    store.set_weather(Weather())
    forget_requests(store)
    end_of(start_fetch(hub_server, folder, commit))
    assert (folder / "model.safetensors").read_bytes() == LARGE
    (resumed_at,) = weights_requests(store)
    assert resumed_at is not None


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A volume of 5 MiB."""
    folder = tmp_path / "volume"
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=5m", "octavo-test", str(folder))
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small volume needs the right to mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(("umount", str(folder)), check=True)


def test_whole_cache_is_served_from_a_volume_that_cannot_be_written(
    store: HubStore, hub_server: ModelHub, small_volume: Path
) -> None:
    commit = store.add_commit(REPO, FILES, message="one")
    fetcher = Fetcher(hub_server, small_volume / commit)
    manifest = fetcher(commit)
    subprocess.run(("mount", "-o", "remount,ro", str(small_volume)), check=True)
    assert fetcher(commit) == manifest
    with pytest.raises(FetchFailed, match="Read-only file system"):
        fetcher(commit, thorough=True)
    fetcher.folder = small_volume / "other"
    with pytest.raises(FetchFailed, match="Read-only file system"):
        fetcher(commit)


def test_volume_without_room_for_a_record_is_told(
    store: HubStore, hub_server: ModelHub, small_volume: Path
) -> None:
    commit = store.add_commit(REPO, {"config.json": b"", "model.safetensors": b""}, message="one")
    (small_volume / "one").mkdir()
    hog = os.open(small_volume / "hog", os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while True:
            os.write(hog, bytes(4096))
    os.close(hog)
    with pytest.raises(FetchFailed) as caught:
        Fetcher(hub_server, small_volume / "one")(commit)
    assert caught.value.reason == contract.REASON_DISK_FULL
    assert "0 B are free" in str(caught.value)
