"""The demo on a cluster that is already there, as `make demo CLUSTER=existing` runs it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.install.paths import ROOT

DEMO = (sys.executable, "-m", "tests.demo")


def run_demo(command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, command, "--cluster", "existing"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_demo_serves_on_an_existing_cluster_and_removes_only_what_it_made(stack, tmp_path) -> None:
    environment = {
        "KUBECONFIG": str(stack.cluster.kubeconfig),
        "ENGINE_IMAGE": stack.images.engine,
        "OPERATOR_IMAGE": stack.images.operator,
        "HUB_ENDPOINT": stack.hub_endpoint,
        "OCTAVO_STATE": str(tmp_path),
    }
    shown = run_demo("up", environment)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    for word in ("Paris", "pinned to", "Memory plan", "vllm:kv_cache_usage_perc", "port-forward", "curl "):
        assert word in shown.stdout

    removed = run_demo("down", environment)
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert stack.kubectl.items("inferenceservices.octavo.dev", "--namespace", "default") == []
    assert stack.operator_pod()["status"]["phase"] == "Running"
