"""The cluster fixtures, for every test below this folder."""

from tests.cluster.local.fixtures import full_cluster, light_cluster

__all__ = ["full_cluster", "light_cluster"]
