"""The last test: the cluster goes, and nothing of it stays on the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_stopping_the_cluster_leaves_nothing_behind(stack) -> None:
    stack.hub.stop()
    stack.cluster.stop()
    name = stack.cluster.name
    for command in (("ip", "netns", "list"), ("ip", "link", "show")):
        assert name not in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert str(stack.cluster.log_dir.parent) not in Path("/proc/mounts").read_text()
