"""The light cluster, started, used and removed for real."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.local.cluster import find_cluster, remove_abandoned, start_full, start_light
from tests.cluster.local.failure import ClusterError
from tests.cluster.local.paths import REPOSITORY, cluster_paths
from tests.cluster.local.processes import find_processes
from tests.cluster.local.removal import remove_cluster
from tests.cluster.local.status import read_status

pytestmark = pytest.mark.cluster

NAME = "trial"


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clusters of these tests are seen by no other run, and end with their test."""
    monkeypatch.setenv("OCTAVO_STATE", str(tmp_path))
    yield
    remove_cluster(cluster_paths(NAME))


def test_light_cluster_runs_controllers_and_leaves_nothing_when_stopped() -> None:
    cluster = start_light(NAME)
    cluster.kubectl("create", "deployment", "web", "--image=none")
    cluster.kubectl("wait", "--for=create", "pod", "--selector=app=web", "--timeout=30s")

    cluster.stop()

    assert read_status(cluster.paths)["state"] == "down"
    assert find_processes(cluster.paths.root) == []
    assert [entry.name for entry in cluster.paths.root.iterdir()] == ["logs"]


def test_light_cluster_is_found_again_when_started_twice() -> None:
    first = start_light(NAME)
    processes = find_processes(first.paths.root)

    second = start_light(NAME)

    assert second == first
    assert find_processes(first.paths.root) == processes


def test_light_cluster_is_made_anew_when_a_part_of_it_died() -> None:
    first = start_light(NAME)
    part = next(p for p in find_processes(first.paths.root) if p.label == "controller-manager")
    os.kill(part.pid, signal.SIGKILL)
    assert read_status(first.paths)["state"] == "partial"

    second = start_light(NAME)

    assert second.api().is_ready()
    labels = sorted(process.label for process in find_processes(second.paths.root))
    assert labels == ["api-server", "controller-manager", "etcd"]


@pytest.mark.parametrize("seconds", [0.6, 2.0])
def test_down_cleans_up_when_the_tool_was_killed_in_mid_start(seconds: float) -> None:
    command = [sys.executable, "-m", "tests.cluster.local"]
    tool = subprocess.Popen([*command, "up", "--light", "--name", NAME], cwd=REPOSITORY)
    time.sleep(seconds)
    tool.kill()
    tool.wait()

    subprocess.run([*command, "down", "--name", NAME], cwd=REPOSITORY, check=True)

    assert find_processes(cluster_paths(NAME).root) == []
    assert find_cluster(NAME) is None


def heed_interrupts() -> None:
    """As in a shell's foreground; what a script starts in the background ignores Ctrl-C from birth."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_up_cleans_up_after_itself_when_interrupted() -> None:
    command = [sys.executable, "-m", "tests.cluster.local", "up", "--light", "--name", NAME]
    tool = subprocess.Popen(command, cwd=REPOSITORY, preexec_fn=heed_interrupts)
    root = cluster_paths(NAME).root
    deadline = time.monotonic() + 30
    while not find_processes(root) and time.monotonic() < deadline:
        time.sleep(0.05)

    tool.send_signal(signal.SIGINT)

    assert tool.wait(timeout=30) == 130
    assert find_processes(root) == []


def test_abandoned_clusters_are_removed_when_their_owner_has_ended() -> None:
    owner = subprocess.Popen(["sleep", "60"])
    cluster = start_light(NAME, owner_pid=owner.pid)
    assert remove_abandoned() == []
    owner.kill()
    owner.wait()

    assert remove_abandoned() == [NAME]

    assert not cluster.paths.root.exists()


def test_start_refuses_when_the_name_is_taken_by_the_other_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    start_light(NAME)
    monkeypatch.setattr("tests.cluster.local.cluster.require_root_and_packages", lambda: None)

    with pytest.raises(ClusterError, match="running as a light cluster"):
        start_full(NAME)
