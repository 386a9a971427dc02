"""HTTP from this process into the local cluster's network namespace.

The cluster has no route out, so Service and pod addresses exist only inside. A socket belongs to the
namespace of the thread that made it, for ever; so a thread of its own enters, connects, and ends.
"""

from __future__ import annotations

import ctypes
import http.client
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CLONE_NEWNET = 0x40000000


def connect_inside(netns: Path, address: tuple[str, int], timeout: float) -> socket.socket:
    """A TCP connection made from inside the network namespace."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_enter_and_connect, netns, address, timeout).result()


def _enter_and_connect(netns: Path, address: tuple[str, int], timeout: float) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    with netns.open() as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"entering {netns}: {os.strerror(ctypes.get_errno())}")
    return socket.create_connection(address, timeout)


class InsideConnection(http.client.HTTPConnection):
    """An HTTP connection to an address that exists only inside the namespace."""

    def __init__(self, netns: Path, host: str, port: int, timeout: float = 120) -> None:
        super().__init__(host, port, timeout=timeout)
        self._netns = netns

    def connect(self) -> None:
        assert self.timeout is not None
        self.sock = connect_inside(self._netns, (self.host, self.port), self.timeout)
