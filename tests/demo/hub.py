"""The model hub of a local cluster: it runs inside the cluster's network and ends with the cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.local import Cluster
from tests.demo.inside import connect_inside
from tests.install.paths import ROOT
from tests.support.model_hub import HubStore, seed_store

HUB_PORT = 8099
START_SECONDS = 30


class HubFailed(Exception):
    """The hub did not start; the text says where its log is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHub:
    """A hub whose files lie in the cluster's own folder."""

    cluster: Cluster
    store: HubStore
    log: Path

    @property
    def endpoint(self) -> str:
        """As the operator and the engine pods reach it."""
        return f"http://{self.cluster.node_ip}:{HUB_PORT}"


def start_hub(cluster: Cluster) -> ClusterHub:
    """The cluster's hub, seeded with the sample model and answering; started unless it runs."""
    folder = cluster.paths.root / "hub"
    store = HubStore(folder)
    seed_store(store)
    hub = ClusterHub(cluster=cluster, store=store, log=cluster.log_dir / "model-hub.log")
    if not answers(hub):
        await_answer(hub, launch(hub, folder))
    return hub


def launch(hub: ClusterHub, folder: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: an interrupt of the demo must not end a hub that a cluster still uses."""
    where = ("--store", folder, "--host", hub.cluster.node_ip, "--port", str(HUB_PORT))
    program = (sys.executable, "-m", "tests.support.model_hub", "serve", *where)
    return hub.cluster.run_inside(["env", f"--chdir={ROOT}", "setsid", *program], log=hub.log)


def await_answer(hub: ClusterHub, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not answers(hub):
        if process.poll() is not None or time.monotonic() > deadline:
            raise HubFailed(f"the model hub did not start; its log: {hub.log}")
        time.sleep(0.1)


def answers(hub: ClusterHub) -> bool:
    try:
        connect_inside(hub.cluster.netns, (hub.cluster.node_ip, HUB_PORT), 2).close()
    except OSError:
        return False
    return True
