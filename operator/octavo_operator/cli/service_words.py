"""A service's status as a person reads it: what serves, what is on its way, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from octavo.units import format_bytes
from octavo_operator.cli.table import age, table

Body = Mapping[str, Any]
LIST_HEADER: Final = ("NAMESPACE", "NAME", "READY", "REASON", "REPLICAS", "REVISION", "MODEL", "AGE")
UNKNOWN: Final = "-"


def listed(bodies: Sequence[Body], now: str) -> str:
    return (
        table(LIST_HEADER, [_list_cells(body, now) for body in bodies]) if bodies else "no InferenceServices"
    )


def _list_cells(body: Body, now: str) -> tuple[str, ...]:
    metadata, status = body["metadata"], body.get("status", {})
    ready = condition_of(status, "Ready")
    return (
        metadata["namespace"],
        metadata["name"],
        ready.get("status", UNKNOWN),
        ready.get("reason", UNKNOWN),
        f"{status.get('readyReplicas', 0)}/{status.get('replicas', 0)}",
        status.get("model", {}).get("shortRevision", UNKNOWN),
        body["spec"]["model"]["uri"],
        age(metadata["creationTimestamp"], now),
    )


def condition_of(status: Body, kind: str) -> Body:
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), {})


def describe(body: Body, now: str) -> str:
    """All that is known of one service, the most asked first."""
    parts = [table(("", ""), list(_facts(body))).lstrip("\n"), _conditions(body, now)]
    parts += [_scaling(body, now), _failure(body, now)]
    return "\n\n".join(part for part in parts if part)


def _facts(body: Body) -> Iterator[tuple[str, str]]:
    metadata, spec, status = body["metadata"], body["spec"], body.get("status", {})
    yield "Service", f"{metadata['namespace']}/{metadata['name']}"
    yield "Model", f"{spec['model']['uri']} at {spec['model'].get('revision', 'main')}"
    yield from _model(status.get("model") or {})
    yield "URL", status.get("url") or UNKNOWN
    yield "Replicas", f"{status.get('readyReplicas', 0)} ready of {status.get('replicas', 0)}"
    yield "Serving", status.get("currentRevision") or "nothing yet"
    if status.get("updateRevision") != status.get("currentRevision"):
        yield "Wanted", status.get("updateRevision") or "nothing that can be made into a revision"
    rollout = status.get("rollout") or {}
    if rollout.get("message"):
        yield "Rollout", f"{rollout['strategy']}, {rollout['step']}: {rollout['message']}"
    yield from _plan(status.get("memoryPlan") or {})


def _model(model: Body) -> Iterator[tuple[str, str]]:
    if model:
        size = model.get("sizeBytes")
        yield "Commit", model["resolvedRevision"] + (f", {format_bytes(size)}" if size else "")
    upstream = model.get("upstreamRevision")
    if upstream and upstream != model["resolvedRevision"]:
        yield "Upstream", f"has moved on to {upstream}"


def _plan(plan: Body) -> Iterator[tuple[str, str]]:
    if not plan:
        return
    device = plan["device"] if plan.get("devices", 1) == 1 else f"{plan['devices']} × {plan['device']}"
    yield (
        "Memory",
        f"{format_bytes(plan['deviceMemoryBytes'])} on {device}: {format_bytes(plan['weightsBytes'])} of "
        f"weights, {plan['kvBlocks']} KV blocks = {plan['kvTokens']} tokens, "
        f"{plan['fullLengthSequences']} sequences of {plan['maxModelLen']}",
    )
    for note in plan.get("notes", ()):
        yield "", note


def _conditions(body: Body, now: str) -> str:
    generation = body["metadata"].get("generation")
    rows = [
        (
            one["type"],
            one["status"] + ("" if one.get("observedGeneration") == generation else " (of an older edit)"),
            one["reason"],
            age(one["lastTransitionTime"], now),
            one.get("message", ""),
        )
        for one in body.get("status", {}).get("conditions", ())
    ]
    return table(("CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"), rows) if rows else "not visited yet"


def _scaling(body: Body, now: str) -> str:
    scaling = body.get("status", {}).get("autoscaling") or {}
    if not scaling:
        return ""
    lines = [f"Replicas wanted: {scaling['desiredReplicas']} ({scaling['reason']}). {scaling['message']}"]
    lines += [f"  {age(one['time'], now)} ago: {one['message']}" for one in scaling.get("recent", ())]
    return "\n".join(lines)


def _failure(body: Body, now: str) -> str:
    failure = body.get("status", {}).get("lastFailure") or {}
    if not failure:
        return ""
    code = f", exit code {failure['exitCode']}" if failure.get("exitCode") is not None else ""
    return f"Last failure, {age(failure['time'], now)} ago: {failure['reason']}{code}. {failure['message']}"
