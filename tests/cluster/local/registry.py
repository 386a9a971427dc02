"""The image registry inside the node's network, from which containerd really pulls.

Its data lies in the cache and is shared by all clusters: layers are named by their content, and the big one
(torch) is pushed once.
"""

from pathlib import Path
from typing import Final

from tests.cluster.local.paths import cache_dir
from tests.cluster.local.processes import Launcher
from tests.cluster.local.program_image import write_program_image

REGISTRY_PORT: Final = 5000
REGISTRY: Final = f"localhost:{REGISTRY_PORT}"
"""Inside, the registry is on loopback of the same network namespace as containerd."""

CONFIGURATION: Final = """\
version: 0.1
log: {{level: warn}}
storage:
  filesystem: {{rootdirectory: {data}}}
  cache: {{blobdescriptor: inmemory}}
http: {{addr: "127.0.0.1:{port}"}}
"""

MIRROR: Final = f"""\
server = "http://{REGISTRY}"
[host."http://127.0.0.1:{REGISTRY_PORT}"]
  capabilities = ["pull", "resolve"]
"""


def start_registry(inside: Launcher, config: Path) -> None:
    """Start the registry in the node's namespaces."""
    data = cache_dir() / "registry"
    data.mkdir(parents=True, exist_ok=True)
    file = config / "registry.yaml"
    file.write_text(CONFIGURATION.format(data=data, port=REGISTRY_PORT))
    inside.start("registry", ["docker-registry", "serve", file])


def write_mirror(config: Path) -> Path:
    """The folder that tells containerd where images of REGISTRY come from: over HTTP, on loopback."""
    hosts = config / "containerd-hosts"
    (hosts / REGISTRY).mkdir(parents=True, exist_ok=True)
    (hosts / REGISTRY / "hosts.toml").write_text(MIRROR)
    return hosts


def push_program(inside: Launcher, archive: Path, *, image: str, program: Path) -> None:
    """Make an image of one static program, give it to containerd, and push it to the registry."""
    write_program_image(archive, image=image, program=program)
    inside.run(["ctr", "--namespace=k8s.io", "images", "import", archive])
    inside.run(["ctr", "--namespace=k8s.io", "images", "push", "--plain-http", image])
