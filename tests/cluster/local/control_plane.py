"""The control plane: etcd, API server, controller manager and scheduler, with the flags that mattered."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final

from tests.cluster.local.audit import write_audit_policy
from tests.cluster.local.credentials import Credentials
from tests.cluster.local.paths import ClusterPaths

SERVICE_CIDR: Final = "10.96.0.0/16"
IMAGE_VOLUMES: Final = ("--feature-gates=ImageVolume=true",)
"""Off by default in 1.34. To mount one takes the kubelet's gate and containerd 2.1 as well."""
API_SERVICE_IP: Final = "10.96.0.1"
"""The first address of the range; Kubernetes gives it to the `kubernetes` Service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """Where one cluster's control plane listens, and what it runs."""

    programs: Mapping[str, Path]
    paths: ClusterPaths
    credentials: Credentials
    bind_address: str
    advertise_address: str | None  # None: the light cluster, where no pod ever looks for the API server
    api_port: int
    etcd_port: int
    etcd_peer_port: int


def etcd_command(plane: ControlPlane) -> list[str | Path]:
    """etcd without fsync: the data is worth no more than the machine's uptime."""
    client, peer = (f"https://127.0.0.1:{port}" for port in (plane.etcd_port, plane.etcd_peer_port))
    pair, authority = plane.credentials.etcd, plane.credentials.authority.certificate
    return [
        plane.programs["etcd"],
        "--name=octavo",
        f"--data-dir={plane.paths.etcd}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=octavo={peer}",
        "--client-cert-auth",
        f"--cert-file={pair.certificate}",
        f"--key-file={pair.key}",
        f"--trusted-ca-file={authority}",
        "--peer-client-cert-auth",
        f"--peer-cert-file={pair.certificate}",
        f"--peer-key-file={pair.key}",
        f"--peer-trusted-ca-file={authority}",
    ]


def api_server_command(plane: ControlPlane) -> list[str | Path]:
    """The API server, with RBAC, node authorization and certificates for everyone."""
    files = plane.credentials
    return [
        plane.programs["kube-apiserver"],
        f"--bind-address={plane.bind_address}",
        f"--secure-port={plane.api_port}",
        *_advertise_flags(plane),
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--etcd-servers=https://127.0.0.1:{plane.etcd_port}",
        f"--etcd-cafile={files.authority.certificate}",
        f"--etcd-certfile={files.etcd_client.certificate}",
        f"--etcd-keyfile={files.etcd_client.key}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        *IMAGE_VOLUMES,
        "--allow-privileged",
        f"--audit-policy-file={write_audit_policy(plane.paths)}",
        f"--audit-log-path={plane.paths.audit_log}",
        f"--tls-cert-file={files.api_server.certificate}",
        f"--tls-private-key-file={files.api_server.key}",
        f"--client-ca-file={files.authority.certificate}",
        f"--kubelet-certificate-authority={files.authority.certificate}",
        f"--kubelet-client-certificate={files.kubelet_client.certificate}",
        f"--kubelet-client-key={files.kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={files.service_account_key}",
        f"--service-account-signing-key-file={files.service_account_key}",
        # Without these the other components log authentication errors for ever.
        f"--requestheader-client-ca-file={files.front_proxy_authority.certificate}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={files.front_proxy.certificate}",
        f"--proxy-client-key-file={files.front_proxy.key}",
    ]


def _advertise_flags(plane: ControlPlane) -> list[str]:
    if plane.advertise_address is None:
        # An endpoint may not be a loopback address, so nothing is published.
        return ["--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"]
    return [f"--advertise-address={plane.advertise_address}"]


def controller_manager_command(plane: ControlPlane) -> list[str | Path]:
    """The controllers: Deployments, garbage collection, namespaces, service accounts, …"""
    files = plane.credentials
    return [
        plane.programs["kube-controller-manager"],
        f"--kubeconfig={files.controller_manager}",
        "--secure-port=0",
        "--leader-elect=false",
        # A thousand services at once are held up by the default of 20 requests a second, not by the operator.
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={files.service_account_key}",
        f"--root-ca-file={files.authority.certificate}",
        f"--cluster-signing-cert-file={files.authority.certificate}",
        f"--cluster-signing-key-file={files.authority.key}",
    ]


def scheduler_command(plane: ControlPlane) -> list[str | Path]:
    """The scheduler; it puts pods on the one node if they fit."""
    return [
        plane.programs["kube-scheduler"],
        f"--kubeconfig={plane.credentials.scheduler}",
        f"--authentication-kubeconfig={plane.credentials.scheduler}",
        f"--authorization-kubeconfig={plane.credentials.scheduler}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiClient:
    """Just enough of a client to see whether the cluster is up."""

    port: int  # on loopback
    credentials: Path  # the folder with ca.crt, admin.crt and admin.key

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET; status 0 while nobody answers."""
        context = ssl.create_default_context(cafile=self.credentials / "ca.crt")
        context.load_cert_chain(self.credentials / "admin.crt", self.credentials / "admin.key")
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=5, context=context)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, HTTPException):
            return 0, b""
        finally:
            connection.close()

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def exists(self, path: str) -> bool:
        return self.get(path)[0] == 200
