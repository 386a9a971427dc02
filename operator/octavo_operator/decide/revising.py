"""A new revision: what its words, their commit and the memory plan make of it, once and for ever."""

from __future__ import annotations

from typing import Any

from octavo.planning import MemoryPlan
from octavo_operator.decide.intent import HASH_VERSION, build_intent, hash_intent
from octavo_operator.decide.sizing import summarize_plan
from octavo_operator.decide.world import World
from octavo_operator.desired.pins import Pin
from octavo_operator.desired.pod_template import PodInputs, build_pod_template
from octavo_operator.desired.revision import Revision


def build_revision(
    world: World, pin: Pin, plan: MemoryPlan, *, engine_image: str, hub_endpoint: str
) -> Revision:
    """`engine_image` and `hub_endpoint` are the installation's, for what spec leaves open."""
    intent = intent_of(world, pin)
    inputs = PodInputs(
        service=world.owner.name,
        revision=hash_intent(intent),
        spec=world.spec,
        commit=pin.commit,
        manifest_digest=pin.manifest_digest,
        image=world.spec.engine.image or engine_image,
        plan=plan,
        hub_endpoint=hub_endpoint,
    )
    # Pods without a record are there only if somebody deleted it: that restarts none of them, even if this
    # operator would now build them otherwise.
    running = world.deployments.get(inputs.revision)
    template = dict(running.template) if running else build_pod_template(inputs)
    return Revision(
        hash=inputs.revision,
        hash_version=HASH_VERSION,
        intent=intent,
        commit=pin.commit,
        manifest_digest=pin.manifest_digest,
        image=template["spec"]["containers"][0]["image"],
        plan=summarize_plan(plan),
        template=template,
    )


def intent_of(world: World, pin: Pin | None) -> dict[str, Any]:
    """The commit is part of the intent only where the same words follow a branch."""
    return build_intent(world.spec, tracked_commit=pin.commit if pin is not None and pin.tracked else "")
