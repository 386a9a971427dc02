"""The one exception of the local cluster: what failed, and where to look or what to do."""


class ClusterError(Exception):
    """A step failed for a reason the reader can act on; the message says how."""
