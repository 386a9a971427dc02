"""A decision in one sentence with its numbers."""

from __future__ import annotations

from typing import Final

from octavo_operator.decide.scaling.decision import ScalingFigures
from octavo_operator.decide.scaling.readings import Unknown
from octavo_operator.decide.scaling.view import ServiceView

MOST_NAMED: Final = 3
"""Pods that could not be read; a status holds no list of hundreds."""


def explain(replicas: int, figures: ScalingFigures, *, remark: str, view: ServiceView, now: float) -> str:
    """As `6 replicas: 8.9 req/s expected (9.4 now) × 1.35 headroom / 2.06 req/s per replica (…)`."""
    parts = [f"{_counted(replicas)}: {_load(figures)}", *_remarks(figures, remark, view, now)]
    return "; ".join(parts)


def _counted(replicas: int) -> str:
    return f"{replicas} replica" if replicas == 1 else f"{replicas} replicas"


def shown_rate(rate: float) -> str:
    """Three digits of a rate.

    >>> shown_rate(0.04567), shown_rate(2.0649), shown_rate(8.9), shown_rate(1234.5)
    ('0.0457', '2.06', '8.9', '1234')
    """
    return f"{rate:.3g}" if rate < 1000 else f"{rate:.0f}"


def _load(figures: ScalingFigures) -> str:
    rate = figures.replica_rate
    capacity = figures.capacity
    bound = (
        f"({capacity.limited_by}-bound at {capacity.sequences:.0f} sequences, "
        f"TPOT {1000 * capacity.tpot_seconds:.0f} ms)"
    )
    expected = f"{shown_rate(figures.expected_rate)} req/s"
    if shown_rate(figures.demand_rate) != shown_rate(figures.expected_rate):
        expected += f" expected ({shown_rate(figures.demand_rate)} now)"
    arithmetic = f"{expected} × {figures.headroom:.2f} headroom / {shown_rate(rate)} req/s"
    words = f"{arithmetic} per replica {bound}"
    if figures.occupied_replicas > figures.expected_rate * figures.headroom / rate:
        words += f", sequences there now fill {figures.occupied_replicas:.1f}"
    return words


def _remarks(figures: ScalingFigures, remark: str, view: ServiceView, now: float) -> list[str]:
    remarks = [remark] if remark else []
    begun = [pod.created_at for pod in view.pods if pod.state == "starting"]
    if begun:
        left = max(0.0, figures.cold_start_seconds - (now - max(begun)))
        remarks.append(f"{len(begun)} starting, ready in ~{left:.0f} s")
    if figures.unschedulable:
        remarks.append(f"{figures.unschedulable} cannot be scheduled")
    unread = _unread(view)
    if unread:
        remarks.append(f"not read: {unread}")
    return remarks


def explain_blind(view: ServiceView, held: int) -> str:
    return f"{_counted(held)} kept, since no engine has answered yet ({_unread(view) or 'no pod is ready'})"


def _unread(view: ServiceView) -> str:
    reasons = [
        f"{pod.name}: {pod.reading.reason}"
        for pod in view.pods
        if pod.state == "ready" and isinstance(pod.reading, Unknown)
    ]
    more = f" and {len(reasons) - MOST_NAMED} more" if len(reasons) > MOST_NAMED else ""
    return ", ".join(reasons[:MOST_NAMED]) + more
