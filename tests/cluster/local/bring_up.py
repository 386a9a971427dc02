"""The order in which a cluster comes up. Each step waits until the next one can rely on it."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.cluster.local.cgroups import make_cgroups
from tests.cluster.local.control_plane import (
    API_SERVICE_IP,
    ApiClient,
    ControlPlane,
    api_server_command,
    controller_manager_command,
    etcd_command,
    scheduler_command,
)
from tests.cluster.local.credentials import Credentials, make_credentials
from tests.cluster.local.image_store import take_image_store
from tests.cluster.local.kubeconfig import write_kubeconfig
from tests.cluster.local.mounts import mount_node_folders
from tests.cluster.local.network import (
    API_PORT,
    NODE_ADDRESS,
    accepts_connections,
    forward_api_server,
    free_port,
    listens_inside,
    set_up_network,
)
from tests.cluster.local.node import kube_proxy_command, kubelet_command, start_containerd
from tests.cluster.local.paths import ClusterPaths
from tests.cluster.local.processes import Launcher
from tests.cluster.local.progress import say, step
from tests.cluster.local.record import ClusterRecord, Owner, write_record
from tests.cluster.local.registry import REGISTRY_PORT, start_registry
from tests.cluster.local.sandbox import Sandbox, open_sandbox

DEFAULT_ACCOUNT: Final = "/api/v1/namespaces/default/serviceaccounts/default"
"""Made by the controller manager; until it exists no pod can be created."""

PATIENCE_SECONDS: Final = 90.0
"""For one step. On two busy cores the API server has been seen to take 20 s."""


def bring_up_light(paths: ClusterPaths, programs: Mapping[str, Path], owner: Owner | None) -> ClusterRecord:
    """etcd, API server and controller manager on free ports of loopback."""
    say(f"Starting the light cluster {paths.name!r}")
    record = ClusterRecord(mode="light", api_port=free_port(), owner=owner)
    _begin(paths, record, programs)
    server = f"https://127.0.0.1:{record.api_port}"
    plane = ControlPlane(
        programs=programs,
        paths=paths,
        credentials=make_credentials(paths, api_server=server, api_hosts=["127.0.0.1"], node_hosts=[]),
        bind_address="127.0.0.1",
        advertise_address=None,
        api_port=record.api_port,
        etcd_port=free_port(),
        etcd_peer_port=free_port(),
    )
    launcher = Launcher(cluster=paths.root, logs=paths.logs)
    with step("etcd"):
        launcher.start("etcd", etcd_command(plane))
        launcher.wait_for(
            "etcd listens", lambda: accepts_connections(plane.etcd_port), seconds=PATIENCE_SECONDS
        )
    _start_api_server(plane, launcher, record)
    with step("controller manager"):
        launcher.start("controller-manager", controller_manager_command(plane))
        _wait_for_default_account(launcher, record, paths)
    return _finish(paths, record, plane.credentials, launcher)


def _begin(paths: ClusterPaths, record: ClusterRecord, programs: Mapping[str, Path]) -> None:
    paths.make_folders()
    write_record(paths, record)
    for name, program in programs.items():
        (paths.bin / name).symlink_to(program)


def _start_api_server(plane: ControlPlane, launcher: Launcher, record: ClusterRecord) -> None:
    with step("API server"):
        launcher.start("api-server", api_server_command(plane))
        client = ApiClient(port=record.api_port, credentials=plane.paths.certificates)
        launcher.wait_for("the API server is ready", client.is_ready, seconds=PATIENCE_SECONDS)


def _wait_for_default_account(launcher: Launcher, record: ClusterRecord, paths: ClusterPaths) -> None:
    client = ApiClient(port=record.api_port, credentials=paths.certificates)
    launcher.wait_for(
        "the default service account exists",
        lambda: client.exists(DEFAULT_ACCOUNT),
        seconds=PATIENCE_SECONDS,
    )


def _finish(
    paths: ClusterPaths, record: ClusterRecord, credentials: Credentials, launcher: Launcher
) -> ClusterRecord:
    write_kubeconfig(
        paths.kubeconfig,
        cluster=paths.name,
        server=f"https://127.0.0.1:{record.api_port}",
        authority=credentials.authority.certificate,
        client=credentials.admin,
    )
    labels = tuple(label for label, _ in launcher.started)
    ready = dataclasses.replace(record, ready=True, processes=labels)
    write_record(paths, ready)
    return ready


def bring_up_full(paths: ClusterPaths, programs: Mapping[str, Path], owner: Owner | None) -> ClusterRecord:
    """A control plane and a node, in a sandbox with no route out."""
    say(f"Starting the cluster {paths.name!r}")
    with take_image_store() as store:
        record = ClusterRecord(mode="full", api_port=free_port(), owner=owner, image_store=store.folder)
        _begin(paths, record, programs)
        with step("namespaces, mounts and cgroups"):
            make_cgroups(paths)
            sandbox = open_sandbox(paths, keep_open=store.lock)
    inside = Launcher(cluster=paths.root, logs=paths.logs, prefix=sandbox.enter)
    mount_node_folders(inside, paths, store.folder)
    set_up_network(inside)
    plane = _inner_control_plane(paths, programs)
    with step("etcd, containerd and registry"):
        inside.start("etcd", etcd_command(plane))
        start_registry(inside, paths.config)
        for port in (plane.etcd_port, REGISTRY_PORT):
            _wait_for_port(inside, sandbox, port)
        start_containerd(inside, paths, programs)
    forward_api_server(inside, sandbox, outer_port=record.api_port)
    _start_api_server(plane, inside, record)
    with step("controller manager, scheduler, kubelet, kube-proxy; node ready"):
        inside.start("controller-manager", controller_manager_command(plane))
        inside.start("scheduler", scheduler_command(plane))
        inside.start("kubelet", kubelet_command(paths, programs, plane.credentials))
        inside.start("kube-proxy", kube_proxy_command(paths, programs, plane.credentials))
        _wait_for_node(inside, record, paths)
        _wait_for_default_account(inside, record, paths)
    return _finish(paths, record, plane.credentials, inside)


def _inner_control_plane(paths: ClusterPaths, programs: Mapping[str, Path]) -> ControlPlane:
    hosts = ["127.0.0.1", NODE_ADDRESS]
    return ControlPlane(
        programs=programs,
        paths=paths,
        credentials=make_credentials(
            paths,
            api_server=f"https://{NODE_ADDRESS}:{API_PORT}",
            api_hosts=[*hosts, API_SERVICE_IP],
            node_hosts=[*hosts, paths.name],
        ),
        bind_address="0.0.0.0",
        advertise_address=NODE_ADDRESS,
        api_port=API_PORT,
        etcd_port=2379,
        etcd_peer_port=2380,
    )


def _wait_for_port(inside: Launcher, sandbox: Sandbox, port: int) -> None:
    inside.wait_for(f"port {port} listens", lambda: listens_inside(sandbox, port), seconds=PATIENCE_SECONDS)


def _wait_for_node(inside: Launcher, record: ClusterRecord, paths: ClusterPaths) -> None:
    client = ApiClient(port=record.api_port, credentials=paths.certificates)
    inside.wait_for("the node is ready", lambda: _node_is_ready(client, paths.name), seconds=PATIENCE_SECONDS)


def _node_is_ready(client: ApiClient, node: str) -> bool:
    status, body = client.get(f"/api/v1/nodes/{node}")
    if status != 200:
        return False
    conditions = json.loads(body)["status"].get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
