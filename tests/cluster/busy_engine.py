"""An engine's metrics page, with as many requests as a test says."""

from __future__ import annotations

import time

from octavo import engine_contract as contract
from tests.octavo_operator.shell.engine_pages import build_page

PROMPT_TOKENS, OUTPUT_TOKENS = 100, 20
STEPS_A_SECOND = 25


class BusyEngine:
    """Counters that go on while requests come; all pods of a commit share them."""

    def __init__(self) -> None:
        self.rate = 0.0
        """Requests a second of each pod."""
        self.preempted = 0.0
        """Sequences put back, a second."""
        self._served = 0.0
        self._put_back = 0.0
        self._steps = 1000.0
        self._seen_at = time.monotonic()

    def page(self) -> str:
        """As /metrics answers now."""
        now = time.monotonic()
        self._served += self.rate * (now - self._seen_at)
        self._put_back += self.preempted * (now - self._seen_at)
        self._steps += min(1.0, self.rate) * STEPS_A_SECOND * (now - self._seen_at)
        self._seen_at, served = now, self._served
        counted = dict.fromkeys(
            (contract.REQUESTS_ARRIVED, contract.REQUESTS_ADMITTED, contract.REQUESTS_FINISHED), served
        )
        histograms = (contract.UNCACHED_PROMPT_TOKENS, contract.TTFT_SECONDS, contract.TPOT_SECONDS)
        changes = {
            **counted,
            **dict.fromkeys(histograms, served),
            contract.PROMPT_TOKENS: served * PROMPT_TOKENS,
            contract.GENERATION_TOKENS: served * OUTPUT_TOKENS,
            contract.CACHED_PROMPT_TOKENS: 0.0,
            contract.RECOMPUTED_TOKENS: 0.0,
            contract.NUM_PREEMPTIONS: self._put_back,
            # An engine that has sequences to run and makes no step would be taken for a dead one.
            contract.STEPS: self._steps,
            contract.STEP_SECONDS: self._steps / STEPS_A_SECOND,
            contract.NUM_REQUESTS_RUNNING: min(8.0, self.rate),
            contract.NUM_REQUESTS_WAITING: 0.0,
            "kv_referenced": min(8.0, self.rate) * PROMPT_TOKENS,
        }
        return build_page(**changes)
