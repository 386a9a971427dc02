"""The project's own Dockerfiles, built with buildah on a base made from Debian's packages.

No public image registry is needed: the base image, a build argument of the Dockerfiles, is bootstrapped
once. An image carries its inputs' digest as tag, so nothing is built or pushed twice.
"""

from __future__ import annotations

from tests.cluster.images.build import build_images
from tests.cluster.images.push import push_images

__all__ = ["build_images", "push_images"]
