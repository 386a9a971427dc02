"""A real Kubernetes on this machine, for the demo, the tests and CI.

Two sizes. The *light* cluster is etcd, API server and controller manager: it starts in seconds, needs no
root, and has no node. The *full* cluster adds scheduler, kubelet, containerd, kube-proxy and an image
registry, inside namespaces of its own that have no route to any network.

`python -m tests.cluster.local --help` is the same from a shell; docs/guides/local-cluster.md explains it.
"""

from tests.cluster.local.cluster import Cluster, remove_abandoned, start_full, start_light

__all__ = ["Cluster", "remove_abandoned", "start_full", "start_light"]
