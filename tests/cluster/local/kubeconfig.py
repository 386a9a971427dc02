"""Kubeconfig files: how a client finds the API server and proves who it is."""

import base64
import json
from pathlib import Path

from tests.cluster.local.certificates import KeyPair


def write_kubeconfig(path: Path, *, cluster: str, server: str, authority: Path, client: KeyPair) -> Path:
    """Write a file that needs no other file; JSON, which every YAML reader takes."""
    name = f"octavo-{cluster}"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": _base64(authority)},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": _base64(client.certificate),
                    "client-key-data": _base64(client.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
