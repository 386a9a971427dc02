"""The full cluster: pods run, are reached, and nothing is left afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.local.cgroups import find_cgroups
from tests.cluster.local.cluster import Cluster, start_full
from tests.cluster.local.mounts import KERNEL_SETTINGS
from tests.cluster.local.network import accepts_connections, free_port
from tests.cluster.local.paths import REPOSITORY, ClusterPaths, cluster_paths
from tests.cluster.local.processes import FoundProcess, Launcher, find_processes
from tests.cluster.local.registry import push_program
from tests.cluster.local.removal import remove_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOOL = (sys.executable, "-m", "tests.cluster.local")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for this module, that other runs do not see."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_STATE", str(tmp_path_factory.mktemp("state")))
        started = start_full("first", owner_pid=os.getpid())
        yield started
        started.stop()


@pytest.fixture
def second(cluster: Cluster) -> Iterator[ClusterPaths]:
    """The name of another cluster beside the first, removed after the test."""
    paths = cluster_paths("second")
    yield paths
    remove_cluster(paths)


@pytest.fixture(scope="module")
def echo_service(cluster: Cluster) -> str:
    """Address of a Service with two pods behind it, whose image was pulled from the registry."""
    run_echo(cluster, replicas=2)
    cluster.kubectl("expose", "deployment", "echo", "--port=80", "--target-port=8080")
    address = cluster.kubectl("get", "service", "echo", "--output=jsonpath={.spec.clusterIP}")
    wait_until(lambda: answers_inside(cluster, address))  # kube-proxy writes its rules a moment later
    return address


def answers_inside(cluster: Cluster, address: str) -> bool:
    """Whether a connection from the node to port 80 of the address is taken."""
    probe = f"import socket; socket.create_connection(({address!r}, 80), timeout=2)"
    command = [*cluster.enter, sys.executable, "-c", probe]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def run_echo(cluster: Cluster, *, replicas: int) -> None:
    """Push the echo image and run it; `Always` makes the kubelet ask the registry."""
    image = f"{cluster.registry}/octavo/echo:test"
    inside = Launcher(cluster=cluster.paths.root, logs=cluster.log_dir, prefix=cluster.enter)
    push_program(inside, cluster.paths.config / "echo.tar", image=image, program=cluster.bin_dir / "echo")
    container = {"name": "echo", "image": image, "imagePullPolicy": "Always"}
    labels = {"app": "echo"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "echo"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(deployment))
    cluster.kubectl("rollout", "status", "deployment", "echo", "--timeout=60s")


def network_namespaces() -> set[str]:
    found = set()
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(str(link.readlink()))
        except OSError:
            continue
    return found


def mounts_below(folder: Path) -> list[str]:
    """Mount points of any process on this machine that lead into a folder."""
    found = []
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            found += [line for line in table.read_text().splitlines() if str(folder) in line]
        except OSError:
            continue
    return found


def test_node_is_ready_when_the_cluster_is_up(cluster: Cluster) -> None:
    nodes = json.loads(cluster.kubectl("get", "nodes", "--output=json"))["items"]

    assert [node["metadata"]["name"] for node in nodes] == ["first"]
    assert {"type": "InternalIP", "address": cluster.node_ip} in nodes[0]["status"]["addresses"]


def test_pods_pull_their_image_and_write_logs(cluster: Cluster, echo_service: str) -> None:
    assert cluster.kubectl("logs", "deployment/echo") == "serving on :8080\n"
    events = cluster.kubectl("get", "events", "--output=jsonpath={.items[*].message}")
    assert "Successfully pulled image" in events


def test_service_is_reached_when_a_pod_calls_its_own_or_the_other_pod(
    cluster: Cluster, echo_service: str
) -> None:
    pod = cluster.kubectl("get", "pods", "--output=jsonpath={.items[0].metadata.name}")

    # 12 calls over two pods: the chance to miss one of them is 1 in 2048
    answers = [
        cluster.kubectl("exec", pod, "--", "/echo", "get", f"http://{echo_service}") for _ in range(12)
    ]

    assert set(answers) == {"hello\n"}


def test_service_is_reached_from_this_machine_when_kubectl_forwards_a_port(
    cluster: Cluster, echo_service: str
) -> None:
    port = free_port()
    command = [str(cluster.bin_dir / "kubectl"), f"--kubeconfig={cluster.kubeconfig}"]
    forward = subprocess.Popen(
        [*command, "port-forward", "service/echo", f"{port}:80"], stdout=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: accepts_connections(port))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
            assert answer.read() == b"hello\n"
    finally:
        forward.terminate()
        forward.wait()


def test_node_has_no_way_out_of_its_network(cluster: Cluster) -> None:
    log = cluster.log_dir / "links.log"
    assert cluster.run_inside(["ip", "-oneline", "link"], log=log).wait() == 0
    names = {line.split(": ")[1].split("@")[0] for line in log.read_text().splitlines()}

    assert all(name in ("lo", "node0") or name.startswith("veth") for name in names), names


def test_program_started_inside_ends_when_its_handle_is_terminated(cluster: Cluster) -> None:
    handle = cluster.run_inside(["sleep", "300"])
    wait_until(lambda: len(guests(cluster)) == 2)  # nsenter and its child

    handle.terminate()
    handle.wait()

    wait_until(lambda: guests(cluster) == [])


def guests(cluster: Cluster) -> list[FoundProcess]:
    return [process for process in find_processes(cluster.paths.root) if process.label == "guest"]


def wait_until(check: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_kernel_settings_of_the_machine_stay_when_a_kubelet_runs(cluster: Cluster) -> None:
    inside = Path(f"/proc/{find_sandbox_pid(cluster)}/root/proc/sys/kernel/panic").read_text()

    assert inside == f"{KERNEL_SETTINGS['kernel/panic']}\n"
    assert "/proc/sys/" not in Path("/proc/self/mountinfo").read_text()


def find_sandbox_pid(cluster: Cluster) -> int:
    return int(cluster.netns.parts[2])


def test_second_cluster_leaves_nothing_and_harms_no_other_when_it_goes_down(
    cluster: Cluster, echo_service: str, second: ClusterPaths
) -> None:
    other = start_full("second", owner_pid=os.getpid())
    run_echo(other, replicas=1)
    namespace = str(other.netns.readlink())
    assert namespace in network_namespaces()

    other.stop()

    assert find_processes(second.root) == []
    assert find_cgroups(second) == []
    assert mounts_below(second.root) == []
    assert namespace not in network_namespaces()
    assert (
        cluster.kubectl("exec", "deployment/echo", "--", "/echo", "get", f"http://{echo_service}")
        == "hello\n"
    )


@pytest.mark.parametrize("seconds", [0.5, 1.5, 4.0, 9.0])
def test_down_cleans_up_when_the_tool_was_killed_in_mid_start(
    cluster: Cluster, second: ClusterPaths, seconds: float
) -> None:
    tool = subprocess.Popen([*TOOL, "up", "--name", "second"], cwd=REPOSITORY)
    time.sleep(seconds)
    tool.kill()
    tool.wait()

    subprocess.run([*TOOL, "down", "--name", "second"], cwd=REPOSITORY, check=True)

    assert find_processes(second.root) == []
    assert find_cgroups(second) == []
    assert mounts_below(second.root) == []


def test_up_cleans_up_after_itself_when_interrupted(cluster: Cluster, second: ClusterPaths) -> None:
    tool = subprocess.Popen([*TOOL, "up", "--name", "second"], cwd=REPOSITORY)
    wait_until(lambda: any(process.label == "api-server" for process in find_processes(second.root)))

    tool.send_signal(signal.SIGTERM)

    assert tool.wait(timeout=30) == 130
    assert find_processes(second.root) == []
    assert find_cgroups(second) == []
