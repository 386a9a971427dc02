"""What a step of one kind of replica should cost before any was measured.

A device of the table has the vendor's figures. A CPU has none: its engine measures how fast it reads and
multiplies when it starts, and until one has said so a small machine is assumed. Learned costs stay within a
factor of ten of the prior, so it must be of the right order, not more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from octavo.accelerators import ACCELERATORS
from octavo.step_model import DeviceRates, StepCosts, prior_costs, rates_of, work_of_bytes
from octavo_operator.api.status import MemoryPlanStatus
from octavo_operator.decide.scaling.readings import Reading, Unknown
from octavo_operator.desired.revision import Revision

SMALL_CPU: Final = DeviceRates(bytes_per_second=8e9, flops_per_second=50e9)
"""About two cores of a server."""
CPU_ELEMENT_BYTES: Final = 4


def find_prior(plan: MemoryPlanStatus, readings: Iterable[Reading]) -> StepCosts:
    """The table's, else an engine's own, else that of a small machine."""
    accelerator = ACCELERATORS.get(plan.device)
    if accelerator is not None:
        work = work_of_bytes(weights_bytes=plan.weights_bytes, kv_bytes_per_token=plan.kv_bytes_per_token)
        return prior_costs(work, rates_of(accelerator))
    measured = (one.prior for one in readings if not isinstance(one, Unknown) and one.prior is not None)
    work = work_of_bytes(
        weights_bytes=plan.weights_bytes,
        kv_bytes_per_token=plan.kv_bytes_per_token,
        element_bytes=CPU_ELEMENT_BYTES,
    )
    return next(measured, None) or prior_costs(work, SMALL_CPU)


def name_kind(revision: Revision) -> str:
    """Replicas of one kind share their learned costs, whichever service they belong to.

    The plan tells the device, and how many of them share the work.
    """
    plan = revision.plan
    return f"{revision.commit} {revision.image} {plan.device} x{plan.devices} {_cpu_limit(revision)}".strip()


def _cpu_limit(revision: Revision) -> str:
    """A CPU engine is as fast as its pod's limit lets it be."""
    if revision.plan.device in ACCELERATORS:
        return ""
    containers = revision.template.get("spec", {}).get("containers") or [{}]
    limits = containers[0].get("resources", {}).get("limits", {})
    return str(limits.get("cpu", ""))
