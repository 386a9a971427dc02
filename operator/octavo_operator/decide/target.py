"""What spec asks for, made into a revision as far as that goes."""

from __future__ import annotations

from dataclasses import dataclass

from octavo_operator.desired.pins import Pin
from octavo_operator.desired.revision import Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An expected "no": nothing is created for it."""

    reason: str
    message: str
    lasting: bool = True
    """Somebody must change something; otherwise another try may do."""
    waits: bool = False
    """Nothing went wrong: it takes its time."""
    at_hub: bool = False
    """What must change is at the hub, where no edit of the object wakes us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The words' commit if they have one, the revision if it can be, and what stands in the way.

    A refusal without a pin is about the words; one with a pin is about the plan.
    """

    pin: Pin | None = None
    revision: Revision | None = None
    refusal: Refusal | None = None
    config: str = ""
    """The commit's config.json, where it was looked up for this target; to be kept."""
    question: str = ""
    """Of the resolver pod that has not said all yet; any other one can go."""

    def __post_init__(self) -> None:
        assert (self.revision is None) != (self.refusal is None), "a target is a revision or a refusal"
        assert self.revision is None or self.pin is not None, "a revision has pinned words"
