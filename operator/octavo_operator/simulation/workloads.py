"""The named loads: how the rate moves, who asks, and what goes wrong on the way.

Rates are requests per second for the whole service, second by second; at about 1.6 requests per second
that one simulated replica takes, the busiest of them wants some forty replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from octavo.errors import InvalidSpec
from octavo_operator.simulation.arrivals import arrivals
from octavo_operator.simulation.fleet_state import Floats
from octavo_operator.simulation.traffic import CODE, CONVERSATION, Drawn, Traffic, draw_requests, merge

HOUR: Final = 3600
CORRELATION_SECONDS: Final = 600.0
SPREAD: Final = 0.22
"""How fast a wandering rate forgets where it was, and how far it goes: of the requests in each minute of the
Azure conversation trace 2023, the CV is 0.22 and the correlation falls to 0.6 in 5 minutes, 0.2 in 10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackout:
    """A time in which only some pods can be scraped."""

    start: float
    end: float
    answering_ratio: float = 0.0
    stale: bool = False
    """Whether the silent pods repeat an old answer instead of giving none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one run is given."""

    name: str
    seconds: float
    requests: Drawn
    blackouts: tuple[Blackout, ...] = ()
    crashes: tuple[float, ...] = ()
    """When the oldest ready pod's engine restarts: its requests are lost, its counters begin anew."""


def steady(level: float, hours: float) -> Floats:
    """The same rate throughout."""
    return np.full(int(hours * HOUR), level)


def wandering(random: np.random.Generator, level: float, hours: float, *, spread: float = SPREAD) -> Floats:
    """A rate whose logarithm wanders around its level and is drawn back to it."""
    seconds = int(hours * HOUR)
    minutes = seconds // 60 + 2
    keep = np.exp(-60 / CORRELATION_SECONDS)
    pushes = random.normal(0, spread * np.sqrt(1 - keep * keep), minutes)
    values = np.empty(minutes)
    values[0] = random.normal(0, spread)
    for minute in range(1, minutes):
        values[minute] = keep * values[minute - 1] + pushes[minute]
    at = np.arange(seconds) / 60
    rate: Floats = level * np.exp(np.interp(at, np.arange(minutes), values) - spread * spread / 2)
    return rate


def draw(random: np.random.Generator, traffic: Traffic, rate: Floats) -> Drawn:
    """Requests of one kind along a rate: as many independent streams as its highest needs."""
    streams = max(1, round(float(rate.max()) / traffic.stream_rate))
    times = [arrivals(random, rate / streams, variation=traffic.variation) for _ in range(streams)]
    return draw_requests(random, traffic, np.sort(np.concatenate(times)))


def conversation(random: np.random.Generator, scale: float) -> Workload:
    """Chat at a rate that wanders by a quarter."""
    rate = wandering(random, 24 * scale, 2)
    return Workload(name="conv", seconds=len(rate), requests=draw(random, CONVERSATION, rate))


def code(random: np.random.Generator, scale: float) -> Workload:
    """Completions of code: long prompts, short outputs, bursts."""
    rate = wandering(random, 16 * scale, 2)
    return Workload(name="code", seconds=len(rate), requests=draw(random, CODE, rate))


def shifting_mix(random: np.random.Generator, scale: float) -> Workload:
    """A wandering rate of which the share of code goes from a tenth to a half and back."""
    return _mix(random, scale, name="mix", least=0.1, most=0.5)


def whole_shift(random: np.random.Generator, scale: float) -> Workload:
    """A wandering rate that is all chat, then all code, then all chat again."""
    return _mix(random, scale, name="shift", least=0.0, most=1.0)


def _mix(random: np.random.Generator, scale: float, *, name: str, least: float, most: float) -> Workload:
    """The share of code goes from the least to the most and back once."""
    rate = wandering(random, 20 * scale, 2)
    at = np.arange(len(rate)) / len(rate)
    share = (least + most) / 2 - (most - least) / 2 * np.cos(2 * np.pi * at)
    parts = merge(draw(random, CONVERSATION, rate * (1 - share)), draw(random, CODE, rate * share))
    return Workload(name=name, seconds=len(rate), requests=parts)


def step(random: np.random.Generator, scale: float) -> Workload:
    """Two and a half times the rate from one minute to the next, for 50 minutes."""
    rate = steady(12 * scale, 2)
    rate[1800:4800] *= 2.5
    return Workload(name="step", seconds=len(rate), requests=draw(random, CONVERSATION, rate))


def spike(random: np.random.Generator, scale: float) -> Workload:
    """Three times the rate for three minutes, thrice."""
    rate = steady(16 * scale, 2)
    for begin in (1800, 3600, 5400):
        rate[begin : begin + 180] *= 3
    return Workload(name="spike", seconds=len(rate), requests=draw(random, CONVERSATION, rate))


def diurnal(random: np.random.Generator, scale: float) -> Workload:
    """A day in three hours: a fifth of the peak at night, with some unrest on top."""
    hours = 3
    at = np.arange(hours * HOUR) / (hours * HOUR)
    rate = (21 - 14 * np.cos(2 * np.pi * at)) * wandering(random, scale, hours, spread=0.1)
    return Workload(name="diurnal", seconds=len(rate), requests=draw(random, CONVERSATION, rate))


def low_traffic(random: np.random.Generator, scale: float) -> Workload:
    """One request in three seconds, and half an hour of almost none."""
    rate = steady(0.33 * scale, 2)
    rate[3600:5400] = 0.02 * scale
    return Workload(name="low", seconds=len(rate), requests=draw(random, CONVERSATION, rate))


def blackout(random: np.random.Generator, scale: float) -> Workload:
    """A falling rate while metrics are missing, partial or stale, and engines restart."""
    rate = wandering(random, 24 * scale, 2)
    rate[3000:] *= 0.5
    gaps = (
        Blackout(start=1500, end=2100),
        Blackout(start=3000, end=4200),
        Blackout(start=4800, end=5400, answering_ratio=0.5),
        Blackout(start=5700, end=6300, answering_ratio=0.4, stale=True),
    )
    requests = draw(random, CONVERSATION, rate)
    return Workload(
        name="blackout", seconds=len(rate), requests=requests, blackouts=gaps, crashes=(900.0, 2700.0, 4500.0)
    )


SHAPES: Final[Mapping[str, Callable[[np.random.Generator, float], Workload]]] = {
    "conv": conversation,
    "code": code,
    "mix": shifting_mix,
    "step": step,
    "spike": spike,
    "diurnal": diurnal,
    "low": low_traffic,
    "blackout": blackout,
    "shift": whole_shift,
}
"""New ones at the end: a seed draws by the place."""


def draw_workload(name: str, seed: int, *, scale: float = 1.0) -> Workload:
    """A named load, its rate multiplied; the same for the same seed."""
    if name not in SHAPES:
        raise InvalidSpec(f"shape: {name!r} is not known; use one of {', '.join(SHAPES)}")
    return SHAPES[name](np.random.default_rng([seed, list(SHAPES).index(name)]), scale)
