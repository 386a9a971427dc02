"""A later version of Octavo, as far as an upgrade can tell.

Its operator has another version and builds pods otherwise than this one; its engine image has another name.
"""

from __future__ import annotations

import http.client
from typing import Final

from tests.cluster.images import build_images
from tests.cluster.images.buildah import buildah
from tests.cluster.images.push import push_image
from tests.cluster.local import Cluster
from tests.demo.inside import InsideConnection
from tests.demo.installation import Images

VERSION: Final = "99.0.0"
PROBE_TIMEOUT_SECONDS: Final = 9
LIBRARY: Final = "/opt/octavo/lib/python3*/site-packages"
EDITS: Final = (
    ("octavo-*.dist-info/METADATA", "^Version: .*", f"Version: {VERSION}"),
    (
        "octavo_operator/desired/pod_template.py",
        "^(PROBE_TIMEOUT_SECONDS.*) = .*",
        rf"\1 = {PROBE_TIMEOUT_SECONDS}",
    ),
)
"""File, what is replaced, and by what."""
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"


def push_later_version(cluster: Cluster, images: Images) -> Images:
    """Made from this version's images, in seconds."""
    return Images(engine=_rename(cluster, images.engine), operator=_push_operator(cluster))


def _push_operator(cluster: Cluster) -> str:
    container = buildah("from", build_images()["operator"])
    later = f"localhost/octavo/operator-later:{container}"
    try:
        for file, old, new in EDITS:
            edit = f"set -e; for file in {LIBRARY}/{file}; do sed -i -E 's/{old}/{new}/' $file; done"
            buildah("run", "--isolation", "chroot", "--user", "0", container, "--", "sh", "-c", edit)
        buildah("commit", "--quiet", container, later)
        return push_image(later, cluster)
    finally:
        buildah("rm", container)
        buildah("rmi", "--force", later)


def _rename(cluster: Cluster, image: str) -> str:
    """The same image under another tag of the registry, without moving its layers."""
    host, _, path = image.partition("/")
    repository, _, tag = path.rpartition(":")
    address, _, port = host.partition(":")
    connection = InsideConnection(cluster.netns, address, int(port))
    try:
        manifest = _exchange(connection, "GET", f"/v2/{repository}/manifests/{tag}", None)
        _exchange(connection, "PUT", f"/v2/{repository}/manifests/later", manifest)
    finally:
        connection.close()
    return f"{host}/{repository}:later"


def _exchange(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None) -> bytes:
    connection.request(method, path, body, {"Accept": MANIFEST, "Content-Type": MANIFEST})
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status < 300, f"{method} {path}: {answer.status} {content[:300]!r}"
    return content
