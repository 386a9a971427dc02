"""Finding and ending processes by the mark they carry."""

import subprocess
from pathlib import Path

import pytest

from tests.cluster.local.failure import ClusterError
from tests.cluster.local.processes import (
    Launcher,
    find_processes,
    kill_processes,
    read_parent_and_start,
    read_process,
)


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(cluster=tmp_path, logs=tmp_path)


def test_find_processes_sees_children_too_when_only_the_parent_was_started(
    launcher: Launcher, tmp_path: Path
) -> None:
    process = launcher.start("shell", ["sh", "-c", "sleep 60 & echo started; wait"])
    launcher.wait_for("the shell has a child", lambda: launcher.log("shell").read_text() != "", seconds=5)

    found = find_processes(tmp_path)

    assert [entry.label for entry in found] == ["shell", "shell"]
    assert found[0].pid == process.pid
    assert found[1].parent == process.pid
    kill_processes(tmp_path)


def test_kill_processes_ends_only_those_of_its_cluster(launcher: Launcher, tmp_path: Path) -> None:
    other = Launcher(cluster=tmp_path / "other", logs=tmp_path)
    other.cluster.mkdir()
    mine, theirs = launcher.start("mine", ["sleep", "60"]), other.start("theirs", ["sleep", "60"])

    kill_processes(tmp_path)

    assert mine.wait(timeout=5) == -9
    assert theirs.poll() is None
    kill_processes(other.cluster)
    assert theirs.wait(timeout=5) == -9


def test_read_process_is_none_when_a_process_carries_no_mark() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert read_process(process.pid) is None
        process.kill()


def test_start_time_of_a_process_differs_when_it_was_started_later() -> None:
    own = read_parent_and_start(1)

    with subprocess.Popen(["sleep", "60"]) as process:
        assert read_parent_and_start(process.pid)[1] > own[1]
        process.kill()


def test_wait_for_shows_the_end_of_the_log_when_a_process_died(launcher: Launcher) -> None:
    launcher.start("part", ["sh", "-c", "echo no such file; exit 3"])

    with pytest.raises(ClusterError, match=r"(?s)part ended with 3; .*part\.log.*no such file"):
        launcher.wait_for("never", lambda: False, seconds=5)


def test_run_shows_what_a_command_said_when_it_failed(launcher: Launcher) -> None:
    with pytest.raises(ClusterError, match="exited with 4: wrong"):
        launcher.run(["sh", "-c", "echo wrong >&2; exit 4"])
