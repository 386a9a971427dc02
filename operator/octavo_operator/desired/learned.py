"""What is learned of a revision after it was stored: annotations of its ControllerRevision.

`data` of a ControllerRevision can never change, and should not: it is what was asked for. That its pods
were seen to be fit, which image they really ran and how far its rollout has come is found out later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from octavo_operator.api import names
from octavo_operator.desired.rollout_record import EMPTY_RECORD, RolloutRecord, parse_record, render_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """All of it; empty where nothing is known."""

    proven_at: str = ""
    """When its gates let it serve for the first time."""
    evidence: str = ""
    """What they saw."""
    image_digest: str = ""
    """Of the engine image that a ready pod ran."""
    engine_blocks: int | None = None
    """KV blocks that its engine measured room for."""
    answers: str = ""
    """What it answered to the probes of the quality gate while it served."""
    record: RolloutRecord = EMPTY_RECORD


NOTHING: Final = Learned()


def render_annotations(learned: Learned) -> dict[str, str]:
    texts = {
        names.ANNOTATION_PROVEN_AT: learned.proven_at,
        names.ANNOTATION_EVIDENCE: learned.evidence,
        names.ANNOTATION_IMAGE_DIGEST: learned.image_digest,
        names.ANNOTATION_ENGINE_BLOCKS: str(learned.engine_blocks or ""),
        names.ANNOTATION_ANSWERS: learned.answers,
        names.ANNOTATION_ROLLOUT: render_record(learned.record) if learned.record != EMPTY_RECORD else "",
    }
    return {name: text for name, text in texts.items() if text}


def parse_annotations(annotations: Mapping[str, str]) -> Learned:
    blocks = annotations.get(names.ANNOTATION_ENGINE_BLOCKS, "")
    return Learned(
        proven_at=annotations.get(names.ANNOTATION_PROVEN_AT, ""),
        evidence=annotations.get(names.ANNOTATION_EVIDENCE, ""),
        image_digest=annotations.get(names.ANNOTATION_IMAGE_DIGEST, ""),
        engine_blocks=int(blocks) if blocks.isascii() and blocks.isdecimal() else None,
        answers=annotations.get(names.ANNOTATION_ANSWERS, ""),
        record=parse_record(annotations.get(names.ANNOTATION_ROLLOUT)),
    )
