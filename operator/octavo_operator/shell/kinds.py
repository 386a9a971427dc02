"""The kinds that the operator reads and writes, and their paths at the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from octavo_operator.api import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of namespaced object."""

    name: str
    group: str
    version: str
    plural: str

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Without a namespace: objects of all of them."""
        root = f"/apis/{self.group}" if self.group else "/api"
        place = f"namespaces/{namespace}" if namespace else ""
        parts = (root, self.version, place, self.plural, name, subresource)
        return "/".join(part for part in parts if part)


SERVICES: Final = Kind(name="Service", group="", version="v1", plural="services")
CONFIG_MAPS: Final = Kind(name="ConfigMap", group="", version="v1", plural="configmaps")
PODS: Final = Kind(name="Pod", group="", version="v1", plural="pods")
EVENTS: Final = Kind(name="Event", group="", version="v1", plural="events")
DEPLOYMENTS: Final = Kind(name="Deployment", group="apps", version="v1", plural="deployments")
REVISIONS: Final = Kind(name="ControllerRevision", group="apps", version="v1", plural="controllerrevisions")
INFERENCE_SERVICES: Final = Kind(
    name=names.KIND, group=names.GROUP, version=names.VERSION, plural=names.PLURAL
)

CHILD_KINDS: Final = (DEPLOYMENTS, PODS, REVISIONS, CONFIG_MAPS, SERVICES)
"""Watched, and only those that carry our label."""
KINDS_BY_NAME: Final = {kind.name: kind for kind in CHILD_KINDS}
