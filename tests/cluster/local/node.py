"""The node: containerd, kubelet and kube-proxy, with the settings that mattered.

Files are written as JSON where the reader takes YAML. Paths are the usual ones; mounts.py puts this cluster's
folders behind them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.cluster.local.cgroups import cgroup_name
from tests.cluster.local.credentials import Credentials
from tests.cluster.local.failure import ClusterError
from tests.cluster.local.network import NODE_ADDRESS, POD_CIDR
from tests.cluster.local.paths import ClusterPaths
from tests.cluster.local.processes import Launcher
from tests.cluster.local.registry import REGISTRY, push_program, write_mirror

CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"
CNI_PROGRAMS: Final = "/usr/lib/cni"
PAUSE_IMAGE: Final = f"{REGISTRY}/octavo/pause:local"
"""What holds a pod's namespaces open. In the registry too, should the kubelet drop it to gain space."""


def start_containerd(inside: Launcher, paths: ClusterPaths, programs: Mapping[str, Path]) -> None:
    """Start containerd, wait until it answers, and give it the pause image; the registry must be up."""
    config = paths.config / "containerd.toml"
    config.write_text(_containerd_config(_write_cni(paths.config), write_mirror(paths.config)))
    inside.start("containerd", ["containerd", f"--config={config}"])
    inside.wait_for("containerd answers", lambda: _answers(inside), seconds=60)
    push_program(inside, paths.config / "pause.tar", image=PAUSE_IMAGE, program=programs["pause"])


def kubelet_command(
    paths: ClusterPaths, programs: Mapping[str, Path], credentials: Credentials
) -> list[str | Path]:
    """The kubelet, with its configuration written beside it."""
    config = paths.config / "kubelet.yaml"
    config.write_text(json.dumps(_kubelet_config(paths, credentials), indent=2))
    return [
        programs["kubelet"],
        f"--config={config}",
        f"--kubeconfig={credentials.node}",
        f"--hostname-override={paths.name}",
        f"--node-ip={NODE_ADDRESS}",
    ]


def kube_proxy_command(
    paths: ClusterPaths, programs: Mapping[str, Path], credentials: Credentials
) -> list[str | Path]:
    """kube-proxy, which makes Service addresses work by rules in the node's own network namespace."""
    config = paths.config / "kube-proxy.yaml"
    config.write_text(json.dumps(_kube_proxy_config(paths.name, credentials), indent=2))
    return [programs["kube-proxy"], f"--config={config}"]


def _answers(inside: Launcher) -> bool:
    try:
        inside.run(["ctr", "--connect-timeout=1s", "version"])
    except ClusterError:
        return False
    return True


def _containerd_config(cni: Path, mirrors: Path) -> str:
    return f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE (in a container, say) no process may lower its score, and each pod would fail.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    # The compressed layers are of no use once unpacked; the engine's are 3 GB.
    discard_unpacked_layers = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{mirrors}"
"""


def _write_cni(config: Path) -> Path:
    """Pods are joined to the node by point-to-point links, so that every packet between them is routed.

    On a bridge, an answer from a pod to its neighbour would by-pass the Service rules unless the machine
    has br_netfilter.
    """
    folder = config / "cni"
    folder.mkdir(exist_ok=True)
    links = {"type": "ptp", "ipMasq": False}
    addresses = {"type": "host-local", "ranges": [[{"subnet": POD_CIDR}]], "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [{**links, "ipam": addresses}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    content = {"cniVersion": "0.4.0", "name": "octavo", "plugins": plugins}
    (folder / "10-octavo.conflist").write_text(json.dumps(content, indent=2))
    return folder


def _kubelet_config(paths: ClusterPaths, credentials: Credentials) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(credentials.authority.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(credentials.kubelet.certificate),
        "tlsPrivateKeyFile": str(credentials.kubelet.key),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup_name(paths)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "resolvConf": "",  # no DNS server can be reached, so none is named
        # A developer's disk is often nearly full; pods must not be evicted for that.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 95,  # the image store outlives clusters: this keeps it in bounds
        "imageGCLowThresholdPercent": 90,
        # Quicker than the defaults, which spare large clusters.
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
    }


def _kube_proxy_config(cluster: str, credentials: Credentials) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(credentials.kube_proxy)},
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": cluster,
        "oomScoreAdj": 0,
        # These are settings of the whole machine: zero leaves them as they are.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
