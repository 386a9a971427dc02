"""Which revision serves, which one is on its way, and what may go.

At most two revisions have pods: the one that serves and the one that spec asks for. A revision is
*proven* once enough of its pods were ready to take the traffic over; before that it never displaces one
that was.

| spec asks for          | serving one      | then                                                      |
|------------------------|------------------|-----------------------------------------------------------|
| nothing known (yet)    | proven           | keep it; whatever else was on its way goes                |
| the serving one        | –                | keep it; whatever else was on its way goes                |
| another                | proven           | start it beside; when enough are ready it serves          |
| another                | none or unproven | it takes the Service at once; the unproven one goes       |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from octavo_operator.decide.observed import DeploymentView


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutView:
    """What the decision is made from."""

    target: str | None
    """Revision that spec asks for; None while its words are not resolved or not feasible."""
    selected: str | None
    """Revision that the Service points at."""
    proven: Collection[str]
    deployments: Mapping[str, DeploymentView]
    replicas: int
    """How many there should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutDecision:
    """What should exist after this pass."""

    serving: str | None
    """Revision that the Service is to point at."""
    target: str | None
    replicas: Mapping[str, int]
    """Replicas of each Deployment to be applied."""
    remove: tuple[str, ...]
    """Revisions whose Deployments are to be deleted."""
    newly_proven: bool
    """The target became fit to serve in this pass."""
    promoted: bool
    """The target serves and was proven."""
    reason: str
    message: str


def decide_rollout(view: RolloutView) -> RolloutDecision:
    serving = view.selected if _may_serve(view) else None
    fit = view.target is not None and is_fit(view, serving)
    newly_proven = fit and view.target not in view.proven
    if view.target is not None and (fit or serving is None):
        serving_next: str | None = view.target
    else:
        serving_next = serving
    keep = {one for one in (serving_next, view.target) if one is not None}
    # The old one goes only when the Service is seen to point elsewhere: not in the pass that moves it.
    retained = keep | ({serving} if serving is not None else set())
    remove = tuple(sorted(set(view.deployments) - retained))
    promoted = (
        view.target is not None
        and serving_next == view.target
        and (newly_proven or view.target in view.proven)
    )
    reason, message = _describe(view, serving, serving_next, promoted)
    return RolloutDecision(
        serving=serving_next,
        target=view.target,
        replicas=dict.fromkeys(sorted(keep), view.replicas),
        remove=remove,
        newly_proven=newly_proven,
        promoted=promoted,
        reason=reason,
        message=message,
    )


def _may_serve(view: RolloutView) -> bool:
    """The selected revision keeps the traffic only if it was proven and its pods were not taken away."""
    return view.selected in view.proven and view.selected in view.deployments


def is_fit(view: RolloutView, serving: str | None) -> bool:
    """Enough of the target's pods are ready to take over what the serving one carries."""
    assert view.target is not None
    candidate = view.deployments.get(view.target)
    if candidate is None or candidate.ready == 0:
        return False
    if serving is None or serving == view.target:
        return True
    carried = max(1, view.deployments[serving].ready)
    return candidate.ready >= min(view.replicas, carried)


def _describe(
    view: RolloutView, serving: str | None, serving_next: str | None, promoted: bool
) -> tuple[str, str]:
    if view.target is None:
        kept = f"revision {serving} goes on serving" if serving else "no revision serves"
        return "NoRevision", f"What spec asks for cannot be made into a revision; {kept}"
    if promoted and serving not in (None, view.target):
        return "Promoted", f"Revision {view.target} took over from {serving}"
    if promoted:
        return "Serving", f"Revision {view.target} serves"
    candidate = view.deployments.get(view.target)
    ready = candidate.ready if candidate else 0
    beside = f"; revision {serving} serves meanwhile" if serving_next == serving and serving else ""
    progress = f"{ready} of {view.replicas} replicas of revision {view.target} are ready"
    return "RolloutProgressing", f"{progress}{beside}"
