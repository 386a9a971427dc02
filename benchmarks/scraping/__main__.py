"""`python -m benchmarks.scraping`: processor time of reading so many engines, and of deciding on them.

The engines answer from another process, and only this one's time counts. It fails where a round takes more
than a third of one core at the interval of the operator.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from octavo.step_model import StepCosts
from octavo_operator.api.spec import Autoscaling
from octavo_operator.decide.observed import PodView
from octavo_operator.decide.scaling import (
    EngineReading,
    PlannerState,
    Reading,
    ScaledPod,
    ServiceView,
    decide_replicas,
)
from octavo_operator.shell.autoscaler import INTERVAL_SECONDS
from octavo_operator.shell.scrape import Scraper

MOST_SHARE: Final = 1 / 3
"""Of one core: the rest is for passes over the services."""
PRIOR: Final = StepCosts(
    base_seconds=0.9, prefill_token_seconds=0.02, context_token_seconds=7e-6, sequence_seconds=0.02
)


def main(argv: Sequence[str] | None = None) -> int:
    """0 with room to spare, 1 without."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scraping", description=__doc__)
    parser.add_argument("--pods", type=int, default=500, metavar="N", help="engines to read (500)")
    parser.add_argument("--services", type=int, default=10, metavar="N", help="services they belong to (10)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds to measure (5)")
    options = parser.parse_args(argv)
    with engines() as (port, length):
        cpu, wall, known = asyncio.run(measure(port, options.pods, options.services, options.rounds))
    share = cpu / INTERVAL_SECONDS
    print(f"page                {length} bytes")
    print(f"pods read           {known} of {options.pods}, in {options.services} services")
    print(f"processor, a round  {cpu:.2f} s, of it {1000 * cpu / options.pods:.2f} ms a pod")
    print(f"time, a round       {wall:.2f} s")
    print(f"of one core         {share:.1%} at a round every {INTERVAL_SECONDS:.0f} s")
    return 0 if share <= MOST_SHARE and known == options.pods else 1


@contextmanager
def engines() -> Iterator[tuple[int, int]]:
    """Port, and bytes of a page."""
    command = [sys.executable, "-m", "benchmarks.scraping.engines"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None, "it is a pipe"
        port, length = process.stdout.readline().split()
        yield int(port), int(length)
    finally:
        process.kill()
        process.wait()


async def measure(port: int, pods: int, services: int, rounds: int) -> tuple[float, float, int]:
    """Processor and wall seconds of a round, the mean, and how many engines were read in the last."""
    scraper = Scraper(clock=time.time)
    crowds = [list(range(first, pods, services)) for first in range(services)]
    states = [PlannerState() for _ in crowds]
    cpu, wall, known = time.process_time(), time.monotonic(), 0
    try:
        for _ in range(rounds):
            answers = await asyncio.gather(
                *(scraper.read([view_pod(number) for number in crowd], port) for crowd in crowds)
            )
            known = sum(isinstance(one, EngineReading) for answer in answers for one in answer.values())
            states = [decide(answer, state) for answer, state in zip(answers, states, strict=True)]
    finally:
        await scraper.close()
    return (time.process_time() - cpu) / rounds, (time.monotonic() - wall) / rounds, known


def decide(readings: dict[str, Reading], state: PlannerState) -> PlannerState:
    pods = tuple(
        ScaledPod(name=name, state="ready", created_at=0.0, ready_at=60.0, reading=reading)
        for name, reading in readings.items()
    )
    view = ServiceView(
        pods=pods,
        replicas=len(pods),
        in_rollout=False,
        engine="kind",
        prior=PRIOR,
        max_model_len=16_384,
    )
    policy = Autoscaling(max_replicas=1000)
    return decide_replicas(now=time.time(), policy=policy, view=view, state=state)[1]


def view_pod(number: int) -> PodView:
    return PodView(
        name=f"pod-{number}",
        revision="r",
        address=f"127.1.{number // 250}.{number % 250 + 1}",
        ready=True,
        created_at=0.0,
        ready_at=60.0,
        deletion_cost="",
        terminating=False,
        phase="Running",
        unschedulable="",
        unschedulable_at=None,
        containers=(),
    )


if __name__ == "__main__":
    raise SystemExit(main())
