"""The node's network: a namespace with addresses of its own and no way out.

Only a bridge without ports carries the node's address (a kubelet refuses a loopback one), and the default
route leads to that bridge, so what leaves goes nowhere. Clusters side by side use the same addresses, each
in its own namespace. The one door is the API server: a pair of forwarders joined by a Unix socket, which
crosses network namespaces, leads to it from this machine's loopback.
"""

import socket
from pathlib import Path
from typing import Final

from tests.cluster.local.processes import Launcher
from tests.cluster.local.sandbox import Sandbox

NODE_ADDRESS: Final = "10.88.0.1"
POD_CIDR: Final = "10.244.0.0/16"
API_PORT: Final = 6443
"""The API server's port inside; outside, each cluster gets a free one."""

SOCKET_NAME: Final = "api-server.sock"
"""Relative to the cluster's folder: an absolute path can be longer than the 107 bytes a socket may have."""

SET_UP_NETWORK: Final = f"""
ip link set lo up
ip link add node0 type bridge
ip address add {NODE_ADDRESS}/24 dev node0
ip link set node0 up
ip route add default dev node0
echo 1 > /proc/sys/net/ipv4/ip_forward
"""


def set_up_network(inside: Launcher) -> None:
    """Give the empty network namespace its addresses and routes."""
    inside.run(["sh", "-euc", SET_UP_NETWORK])


def forward_api_server(inside: Launcher, sandbox: Sandbox, *, outer_port: int) -> None:
    """Open the door: 127.0.0.1:outer_port here is the API server inside."""
    cluster = sandbox.paths.root
    (cluster / SOCKET_NAME).unlink(missing_ok=True)
    inner = [f"UNIX-LISTEN:{SOCKET_NAME},fork,mode=600", f"TCP:127.0.0.1:{API_PORT}"]
    inside.start("forward-inside", ["env", f"--chdir={cluster}", "socat", *inner])
    outer = [f"TCP-LISTEN:{outer_port},bind=127.0.0.1,fork,reuseaddr", f"UNIX-CONNECT:{SOCKET_NAME}"]
    outside = Launcher(
        cluster=cluster, logs=inside.logs, prefix=sandbox.enter_lifetime_only, started=inside.started
    )
    outside.start("forward-outside", ["socat", *outer])


def free_port() -> int:
    """A TCP port of loopback that nothing uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts_connections(port: int) -> bool:
    """Whether something listens on this port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def listens_inside(sandbox: Sandbox, port: int) -> bool:
    """Whether something inside listens on this TCP port, read from the namespace's socket table."""
    listening = "0A"
    table = Path(f"/proc/{sandbox.holder.pid}/net/tcp").read_text().splitlines()[1:]
    table += Path(f"/proc/{sandbox.holder.pid}/net/tcp6").read_text().splitlines()[1:]
    sockets = (line.split() for line in table)
    return any(row[1].endswith(f":{port:04X}") and row[3] == listening for row in sockets)
