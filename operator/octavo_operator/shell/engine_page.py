"""An engine's metrics page as a reading, or why it is none.

A name that is missing, a number that is not finite or is negative, a histogram that falls: each makes the
pod unknown, since none of them is a zero.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Final

from octavo import engine_contract as contract
from octavo.errors import InvalidSpec
from octavo.step_model import DeviceRates, StepCosts, prior_costs, work_of_bytes
from octavo_operator.decide.scaling import EngineReading, Histogram, Reading, StepSums, Unknown
from octavo_operator.decide.scaling.readings import NOTHING_COUNTED
from octavo_operator.shell.exposition import Samples, label_of, read_samples

NUMBERS: Final = (
    contract.NUM_REQUESTS_RUNNING,
    contract.NUM_REQUESTS_WAITING,
    contract.MAX_SEQUENCES,
    contract.MAX_BATCHED_TOKENS,
    contract.REQUESTS_ARRIVED,
    contract.REQUESTS_ADMITTED,
    contract.REQUESTS_FINISHED,
    contract.PROMPT_TOKENS,
    contract.CACHED_PROMPT_TOKENS,
    contract.GENERATION_TOKENS,
    contract.RECOMPUTED_TOKENS,
    contract.NUM_PREEMPTIONS,
    contract.STEPS,
    contract.STEP_SECONDS,
    contract.STEP_PREFILL_TOKENS,
    contract.STEP_CONTEXT_TOKENS,
    contract.STEP_SEQUENCES,
)
HISTOGRAMS: Final = (contract.UNCACHED_PROMPT_TOKENS, contract.TTFT_SECONDS, contract.TPOT_SECONDS)
MEASURED: Final = (
    contract.MEASURED_READ_RATE,
    contract.MEASURED_GEMM_RATE,
    contract.MEASURED_STEP_SECONDS,
    contract.WEIGHT_BYTES,
    contract.KV_BYTES_PER_TOKEN,
)
"""A CPU engine's; others lack some of them."""
LATER: Final = contract.OUTPUT_TOKENS
"""A histogram that engines of earlier versions lack."""
WANTED: Final = frozenset(
    {
        *NUMBERS,
        *MEASURED,
        *(f"{name}_bucket" for name in (*HISTOGRAMS, LATER)),
        contract.KV_TOKENS,
        contract.DRAINING,
        contract.ENGINE_INFO,
    }
)
ELEMENT_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


def parse_page(text: str, *, at: float) -> Reading:
    """The numbers that scaling needs; one that cannot be true makes the pod unknown."""
    try:
        samples = read_samples(text, WANTED)
        return _reading(samples, at=at)
    except ValueError as error:
        return Unknown(reason=str(error))


def _reading(samples: Samples, *, at: float) -> EngineReading:
    value = {name: _sum(samples, name) for name in NUMBERS}
    prompts, ttft, tpot = (_histogram(samples, name) for name in HISTOGRAMS)
    return EngineReading(
        at=at,
        running=value[contract.NUM_REQUESTS_RUNNING],
        waiting=value[contract.NUM_REQUESTS_WAITING],
        kv_tokens_referenced=_state(samples, contract.KV_TOKENS, "referenced"),
        kv_tokens_total=_state(samples, contract.KV_TOKENS, "total"),
        max_sequences=value[contract.MAX_SEQUENCES],
        max_step_tokens=value[contract.MAX_BATCHED_TOKENS],
        draining=any(number > 0 for _, number in samples.get(contract.DRAINING, ())),
        prior=_prior(samples),
        arrived=value[contract.REQUESTS_ARRIVED],
        admitted=value[contract.REQUESTS_ADMITTED],
        finished=value[contract.REQUESTS_FINISHED],
        prompt_tokens=value[contract.PROMPT_TOKENS],
        cached_tokens=value[contract.CACHED_PROMPT_TOKENS],
        generated_tokens=value[contract.GENERATION_TOKENS],
        recomputed_tokens=value[contract.RECOMPUTED_TOKENS],
        preemptions=value[contract.NUM_PREEMPTIONS],
        steps=StepSums(
            steps=value[contract.STEPS],
            seconds=value[contract.STEP_SECONDS],
            prefill_tokens=value[contract.STEP_PREFILL_TOKENS],
            context_tokens=value[contract.STEP_CONTEXT_TOKENS],
            sequences=value[contract.STEP_SEQUENCES],
        ),
        prompts=prompts,
        ttft=ttft,
        tpot=tpot,
        outputs=_histogram(samples, LATER) if f"{LATER}_bucket" in samples else NOTHING_COUNTED,
    )


def _sum(samples: Samples, name: str) -> float:
    """Over all labels: a counter by reason is one counter here."""
    found = samples.get(name)
    if not found:
        raise ValueError(f"{name} is not reported")
    return sum(_checked(name, number) for _, number in found)


def _state(samples: Samples, name: str, state: str) -> float:
    found = [number for labels, number in samples.get(name, ()) if label_of(labels, "state") == state]
    if not found:
        raise ValueError(f"{name} is not reported for {state}")
    return sum(_checked(name, number) for number in found)


def _checked(name: str, number: float) -> float:
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{name} is {number}")
    return number


@lru_cache(maxsize=4096)
def _bound(labels: str) -> float:
    """Of a bucket; the same few hundred label texts come again with every page."""
    return float(label_of(labels, "le"))


def _histogram(samples: Samples, name: str) -> Histogram:
    summed: dict[float, float] = {}
    for labels, count in samples.get(f"{name}_bucket", ()):
        bound = _bound(labels)
        summed[bound] = summed.get(bound, 0.0) + count
    rows = sorted(summed.items())
    if not rows or rows[-1][0] != math.inf:
        raise ValueError(f"{name} is not reported" if not rows else f"{name} has no last bucket")
    counts = tuple(count for _, count in rows)
    _checked(name, counts[0])
    _checked(name, counts[-1])
    if any(late < early for early, late in pairwise(counts)):
        raise ValueError(f"{name} falls from bucket to bucket")
    return Histogram(bounds=tuple(bound for bound, _ in rows[:-1]), counts=counts)


def _prior(samples: Samples) -> StepCosts | None:
    """What the engine measured of its machine, as costs of a step; None where that is not enough."""
    if any(name not in samples for name in MEASURED):
        return None
    reads, multiplies, step, weights, kv = (_sum(samples, name) for name in MEASURED)
    info = next((labels for labels, _ in samples.get(contract.ENGINE_INFO, ())), "")
    work = work_of_bytes(
        weights_bytes=weights,
        kv_bytes_per_token=kv,
        element_bytes=ELEMENT_BYTES.get(label_of(info, "dtype"), 4),
    )
    try:
        rates = DeviceRates(bytes_per_second=reads, flops_per_second=multiplies, step_seconds=step)
        return prior_costs(work, rates)
    except InvalidSpec:
        return None
