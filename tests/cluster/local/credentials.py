"""Who is who in one cluster: every certificate and kubeconfig that its components use."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.local.certificates import KeyPair, issue_certificate, make_authority, make_signing_key
from tests.cluster.local.kubeconfig import write_kubeconfig
from tests.cluster.local.paths import ClusterPaths

API_SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The files that prove identities in one cluster."""

    authority: KeyPair
    front_proxy_authority: KeyPair
    front_proxy: KeyPair
    api_server: KeyPair
    kubelet_client: KeyPair  # the API server, as the kubelet's client
    etcd: KeyPair
    etcd_client: KeyPair
    kubelet: KeyPair
    admin: KeyPair
    service_account_key: Path
    controller_manager: Path  # this and the next three are kubeconfig files
    scheduler: Path
    kube_proxy: Path
    node: Path


def make_credentials(
    paths: ClusterPaths, *, api_server: str, api_hosts: Iterable[str], node_hosts: Iterable[str]
) -> Credentials:
    """Make all of them anew; a cluster lives for days, so nothing is ever renewed."""
    authority = make_authority(paths.certificates, "ca")
    front_proxy_authority = make_authority(paths.certificates, "front-proxy-ca")
    front_proxy = issue_certificate(front_proxy_authority, "front-proxy", user="front-proxy-client")

    def issue(name: str, user: str, *groups: str, hosts: Iterable[str] = ()) -> KeyPair:
        return issue_certificate(authority, name, user=user, groups=groups, hosts=hosts)

    def config(name: str, client: KeyPair) -> Path:
        return write_kubeconfig(
            paths.config / f"{name}.kubeconfig",
            cluster=paths.name,
            server=api_server,
            authority=authority.pair.certificate,
            client=client,
        )

    node_user = f"system:node:{paths.name}"
    return Credentials(
        authority=authority.pair,
        front_proxy_authority=front_proxy_authority.pair,
        front_proxy=front_proxy,
        api_server=issue("api-server", "kube-apiserver", hosts=[*API_SERVICE_NAMES, *api_hosts]),
        kubelet_client=issue("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
        etcd=issue("etcd", "etcd", hosts=["localhost", "127.0.0.1"]),
        etcd_client=issue("etcd-client", "kube-apiserver"),
        kubelet=issue("kubelet", node_user, "system:nodes", hosts=node_hosts),
        admin=issue("admin", "octavo-admin", "system:masters"),
        service_account_key=make_signing_key(paths.certificates / "service-account.key"),
        controller_manager=config(
            "controller-manager", issue("controller-manager", "system:kube-controller-manager")
        ),
        scheduler=config("scheduler", issue("scheduler", "system:kube-scheduler")),
        kube_proxy=config("kube-proxy", issue("kube-proxy", "system:kube-proxy")),
        node=config("node", issue("node", node_user, "system:nodes")),
    )
