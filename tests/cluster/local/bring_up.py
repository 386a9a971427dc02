"""The order in which a cluster comes up. Each step waits until the next one can rely on it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.cluster.local.control_plane import (
    ApiClient,
    ControlPlane,
    api_server_command,
    controller_manager_command,
    etcd_command,
)
from tests.cluster.local.credentials import Credentials, make_credentials
from tests.cluster.local.kubeconfig import write_kubeconfig
from tests.cluster.local.network import accepts_connections, free_port
from tests.cluster.local.paths import ClusterPaths
from tests.cluster.local.processes import Launcher
from tests.cluster.local.progress import say, step
from tests.cluster.local.record import ClusterRecord, Owner, write_record

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
    return _finish(paths, record, plane.credentials)


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


def _finish(paths: ClusterPaths, record: ClusterRecord, credentials: Credentials) -> ClusterRecord:
    write_kubeconfig(
        paths.kubeconfig,
        cluster=paths.name,
        server=f"https://127.0.0.1:{record.api_port}",
        authority=credentials.authority.certificate,
        client=credentials.admin,
    )
    ready = dataclasses.replace(record, ready=True)
    write_record(paths, ready)
    return ready


def bring_up_full(paths: ClusterPaths, programs: Mapping[str, Path], owner: Owner | None) -> ClusterRecord:
    raise NotImplementedError
