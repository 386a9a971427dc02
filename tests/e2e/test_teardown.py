"""The last test: the cluster goes, and nothing of it stays on the machine."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.local.status import read_status


def test_stopping_the_cluster_leaves_nothing_behind(stack) -> None:
    paths = stack.cluster.paths
    network = stack.cluster.netns.readlink()
    before = read_status(paths)
    assert before["processes"] and before["cgroups"] and processes_in(network)
    stack.cluster.stop()

    left = read_status(paths)
    assert (left["state"], left["processes"], left["cgroups"]) == ("down", {}, [])
    assert str(paths.root) not in Path("/proc/self/mounts").read_text()
    assert [entry for entry in paths.root.iterdir() if entry != paths.logs] == []
    assert not processes_in(network)


def processes_in(network: Path) -> list[str]:
    """Every process of a network namespace, which the kernel keeps for just as long as there are any."""
    found = []
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            if link.readlink() == network:
                found.append(link.parts[2])
        except OSError:
            continue
    return found
