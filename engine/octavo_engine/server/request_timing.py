"""What happened to requests and when, seen from the event loop; the metrics page reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from octavo import engine_contract as contract
from octavo_engine.requests import FinishReason, TokenEvent
from octavo_engine.server.histogram import ITL_BOUNDS, REQUEST_BOUNDS, TTFT_BOUNDS, Histogram, fine_bounds


@dataclass(slots=True)
class _Timeline:
    """The moments of one sequence; the last ones are None and 0 until its first token."""

    arrival: float
    is_accepted: bool = False
    first_token: float | None = None
    last_token: float = 0.0
    num_tokens: int = 0


class RequestTimings:
    """Counts and durations of sequences. Lives in the event loop's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, _Timeline] = {}
        self.num_arrived = 0
        self.finished: Counter[FinishReason] = Counter()
        self.ttft = Histogram(contract.TIME_TO_FIRST_TOKEN, "Arrival to first token.", TTFT_BOUNDS)
        self.itl = Histogram(contract.INTER_TOKEN_LATENCY, "Between two tokens of a request.", ITL_BOUNDS)
        self.e2e = Histogram(contract.E2E_REQUEST_LATENCY, "Arrival to last token.", REQUEST_BOUNDS)
        self.queue = Histogram(contract.REQUEST_QUEUE_TIME, "Arrival to first admission.", REQUEST_BOUNDS)
        self.fine_ttft = Histogram(contract.TTFT_SECONDS, "Arrival to first token, fine.", fine_bounds())
        self.fine_tpot = Histogram(
            contract.TPOT_SECONDS, "A request's mean time per token after its first, fine.", fine_bounds()
        )

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        """All of them."""
        return (self.ttft, self.itl, self.e2e, self.queue, self.fine_ttft, self.fine_tpot)

    def handed_over(self, request_id: str, arrival: float) -> None:
        """A sequence is on its way to the engine, which may refuse it."""
        self._open[request_id] = _Timeline(arrival)

    def accepted(self, request_id: str) -> None:
        """The engine took it on."""
        timeline = self._open.get(request_id)
        if timeline is not None and not timeline.is_accepted:
            timeline.is_accepted = True
            self.num_arrived += 1

    def turned_away(self, num_sequences: int) -> None:
        """The queue was full: demand all the same."""
        self.num_arrived += num_sequences

    def refused(self, request_id: str) -> None:
        """The engine will never take it on: the client's mistake is no demand, and nothing to time."""
        self._open.pop(request_id, None)

    def received(self, event: TokenEvent) -> None:
        """The engine reported on a sequence."""
        timeline = self._open.get(event.request_id)
        if timeline is None:
            return
        if event.queue_seconds is not None:
            self.queue.observe(event.queue_seconds)
        if event.token_ids:
            self._received_tokens(timeline, len(event.token_ids))

    def finished_by(self, request_id: str, reason: FinishReason) -> None:
        """A sequence ended; before the engine answered, if its client left or the server went away."""
        self.accepted(request_id)
        timeline = self._open.pop(request_id, None)
        self.finished[reason] += 1
        if timeline is None or timeline.first_token is None or reason not in ("stop", "length"):
            return
        self.e2e.observe(timeline.last_token - timeline.arrival)
        if timeline.num_tokens > 1:
            decode_seconds = timeline.last_token - timeline.first_token
            self.fine_tpot.observe(decode_seconds / (timeline.num_tokens - 1))

    def _received_tokens(self, timeline: _Timeline, count: int) -> None:
        now = self._clock()
        if timeline.first_token is None:
            timeline.first_token = now
            self.ttft.observe(now - timeline.arrival)
            self.fine_ttft.observe(now - timeline.arrival)
        else:
            self.itl.observe((now - timeline.last_token) / count, count)
        timeline.last_token = now
        timeline.num_tokens += count
