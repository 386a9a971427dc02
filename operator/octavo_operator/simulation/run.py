"""One run: a workload, an engine and a policy, from the first request to the last.

Between two moments at which something is decided, scraped or becomes ready, all replicas run in the
compiled loop; everything else happens here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from octavo_operator.simulation.engine_law import SimulatedEngine, noise_table
from octavo_operator.simulation.fleet_state import FINISHED, Floats, histogram_bounds, new_requests
from octavo_operator.simulation.observing import Observation, Policy
from octavo_operator.simulation.outcome import Objective, Outcome, count_reversals, kept_objectives, percent
from octavo_operator.simulation.pods import Lifetimes, Pod, Pods
from octavo_operator.simulation.routing import run_until
from octavo_operator.simulation.workloads import Blackout, Workload

SETTLE_SECONDS: Final = 240.0
"""After the last arrival: requests in flight may end; nothing is decided or paid for any more."""
FRESH_RATIO: Final = 0.7
"""Fewer pods than this share answering is a blackout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is the same for all policies of a comparison."""

    engine: SimulatedEngine
    objective: Objective = field(default_factory=Objective)
    cold_start_seconds: float = 180.0
    drain_seconds: float = 120.0
    scrape_seconds: float = 10.0
    initial_replicas: int
    seed: int = 0
    """Of noise, cold starts and routing."""
    min_replicas: int = 1
    max_replicas: int = 64
    warm_up_seconds: float = 600.0
    """Not counted: the fleet begins with a size that nobody chose."""
    route_choices: int = 2
    """1: a pod at random; 2: the one with fewer requests of two at random."""

    def counted_from(self, seconds: float) -> float:
        """When the warm-up of a run of so many seconds is over."""
        return min(self.warm_up_seconds, seconds / 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One decision, for people and plots."""

    at: float
    replicas: int
    """Asked for from now on."""
    ready: int
    """Pods that get requests from now on."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The outcome and how it came about."""

    outcome: Outcome
    moments: tuple[Moment, ...]


class Simulation:
    """The state of one run."""

    def __init__(self, workload: Workload, setting: Setting, policy: Policy) -> None:
        drawn = workload.requests
        self._workload, self._setting, self._policy = workload, setting, policy
        self._random = np.random.default_rng([setting.seed, 11])
        self._bounds = histogram_bounds()
        self._requests = new_requests(drawn.arrival, drawn.prompt, drawn.output, drawn.shared, drawn.reusable)
        self._noise = noise_table(setting.engine.disturbance, setting.seed)
        self._draws: Floats = self._random.random((len(drawn.arrival), 2))
        self._cursor = 0
        self._now = 0.0
        self._replicas = setting.initial_replicas
        self._moments: list[Moment] = []
        self._lowered_blind = 0
        lifetimes = Lifetimes(
            cold_start_seconds=setting.cold_start_seconds, drain_seconds=setting.drain_seconds
        )
        self._pods = Pods(
            lifetimes=lifetimes,
            most=4 * setting.max_replicas,
            random=self._random,
        )

    def run(self, on_progress: Callable[[float], None] = lambda _: None) -> Run:
        """Everything, in order of time."""
        self._pods.make_ready(self._replicas)
        self._pods.pass_time(0.0, self._requests)
        decision = self._policy.interval_seconds
        scrape = every = min(self._setting.scrape_seconds, decision)
        crashes = list(self._workload.crashes)
        while self._now < self._workload.seconds:
            due = min(
                scrape, decision, self._workload.seconds, *crashes[:1], self._pods.next_change(self._now)
            )
            on_progress(due - self._now)
            self._run_to(due)
            if crashes and due >= crashes[0]:
                self._pods.restart_oldest(due, self._requests)
                crashes.pop(0)
            if due >= scrape:
                self._scrape(due)
                scrape += every
            if due >= decision:
                self._decide(due)
                decision += self._policy.interval_seconds
        return self._finish()

    def _run_to(self, until: float) -> None:
        noise_factors, stalls = self._noise
        self._cursor = run_until(
            self._setting.engine.law,
            self._requests,
            self._pods.replicas,
            self._bounds,
            noise_factors,
            stalls,
            self._draws,
            self._pods.indices("ready"),
            self._pods.indices("ready", "terminating"),
            self._cursor,
            self._now,
            until,
            self._setting.route_choices,
        )
        self._now = until
        self._pods.pass_time(until, self._requests)

    # Scraping and deciding ----------------------------------------------------------------------

    def _blackout(self, now: float) -> Blackout | None:
        return next((gap for gap in self._workload.blackouts if gap.start <= now < gap.end), None)

    def _scrape(self, now: float) -> None:
        gap = self._blackout(now)
        for pod in self._pods.live:
            if pod.state == "starting":
                continue
            if gap is None or self._answers(pod, gap):
                pod.last = self._pods.read(pod, now)
            elif not gap.stale or pod.last is None:
                pod.last = None
            else:  # a hung exporter repeats itself, with a new time
                pod.last = replace(pod.last, at=now)

    @staticmethod
    def _answers(pod: Pod, gap: Blackout) -> bool:
        """Always the same pods, spread evenly over the names."""
        return (pod.index * 0.618034) % 1.0 < gap.answering_ratio

    def _is_blind(self, now: float) -> bool:
        """Whether too few of the ready pods tell the truth."""
        gap = self._blackout(now)
        ready = [pod for pod in self._pods.live if pod.state == "ready"]
        return gap is not None and sum(self._answers(pod, gap) for pod in ready) < FRESH_RATIO * len(ready)

    def _decide(self, now: float) -> None:
        observation = Observation(now=now, replicas=self._replicas, pods=self._pods.sights())
        wish = self._policy.decide(observation)
        wanted = min(max(wish.replicas, self._setting.min_replicas), self._setting.max_replicas)
        if wanted < self._replicas and self._is_blind(now):
            self._lowered_blind += 1
        self._replicas = wanted
        self._pods.scale_to(wanted, now, wish.victims)
        ready = len(self._pods.indices("ready"))
        self._moments.append(Moment(at=now, replicas=wanted, ready=ready, message=wish.message))

    # The end ------------------------------------------------------------------------------------

    def _finish(self) -> Run:
        end = self._now
        start = self._setting.counted_from(end)
        seconds = self._pods.replica_seconds(start, end)
        self._run_to(end + SETTLE_SECONDS)
        kept = kept_objectives(self._requests, self._setting.objective)
        counted = self._requests["arrival"] >= start
        series = [moment.replicas for moment in self._moments if moment.at >= start]
        outcome = Outcome(
            policy=self._policy.name,
            workload=self._workload.name,
            seed=self._setting.seed,
            cold_start_seconds=self._setting.cold_start_seconds,
            num_requests=int(counted.sum()),
            attained_percent=percent((kept.ttft * kept.tpot)[counted]),
            ttft_percent=percent(kept.ttft[counted]),
            tpot_percent=percent(kept.tpot[counted]),
            replica_hours=seconds / 3600,
            mean_replicas=seconds / (end - start),
            reversals_per_hour=count_reversals(series) / ((end - start) / 3600),
            aborted=self._pods.num_aborted,
            lost=self._pods.num_lost,
            unanswered=int((self._requests["state"][counted] != FINISHED).sum()),
            preemptions=int(self._requests["preempted"][counted].sum()),
            lowered_in_blackout=self._lowered_blind,
        )
        return Run(outcome=outcome, moments=tuple(self._moments))


def simulate(
    workload: Workload,
    setting: Setting,
    policy: Policy,
    *,
    on_progress: Callable[[float], None] = lambda _: None,
) -> Run:
    """Run one policy on one workload."""
    return Simulation(workload, setting, policy).run(on_progress)
