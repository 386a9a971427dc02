"""The cluster fixture, for the tests that install on a real API server."""

from tests.cluster.local.fixtures import light_cluster

__all__ = ["light_cluster"]
