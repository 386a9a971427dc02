"""Is the engine's image named by what it is, or by a tag that can come to name another?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from octavo_operator.api import names
from octavo_operator.decide.conditions import Finding
from octavo_operator.decide.observed import PodView

IMAGE_PINNED: Final = "ImagePinned"
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(reference: str) -> str:
    """The digest in an image's reference or in the kubelet's name for it; empty where there is none.

    >>> digest_of("ghcr.io/octavo/engine:1@sha256:" + "0f" * 32) == "sha256:" + "0f" * 32
    True
    """
    found = DIGEST.search(reference)
    return found[0] if found is not None else ""


def observed_digests(pods: Iterable[PodView]) -> tuple[str, ...]:
    """What the pods' engines really run, each once; none before a container was started."""
    ids = (one.image_id for pod in pods for one in pod.containers if one.name == names.CONTAINER_ENGINE)
    return tuple(sorted({digest for image in ids if (digest := digest_of(image))}))


def judge_image(image: str, digests: tuple[str, ...]) -> Finding:
    """
    | reference       | pods run   | ImagePinned            |
    |-----------------|------------|------------------------|
    | with a digest   | any        | True, `Digest`         |
    | a tag           | none, one  | False, `Tag`           |
    | a tag           | several    | False, `ImagesDiffer`  |
    """
    if digest_of(image):
        return Finding(type=IMAGE_PINNED, status="True", reason="Digest", message=f"{image} names one image")
    tagless = image.rpartition(":")[0] if ":" in image.rpartition("/")[2] else image
    if len(digests) > 1:
        message = f"Pods of one revision run different images of {image}: {', '.join(digests)}"
        return Finding(type=IMAGE_PINNED, status="False", reason="ImagesDiffer", message=message)
    seen = f"; its pods run {tagless}@{digests[0]}" if digests else ""
    message = f"{image} is a tag, which can come to name another image; write the digest{seen}"
    return Finding(type=IMAGE_PINNED, status="False", reason="Tag", message=message)
