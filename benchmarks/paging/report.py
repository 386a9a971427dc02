"""What is run, what comes out, and the result as JSON and as tables.

The result file, the tables of docs/concepts/paging.md and the figure are all made from one `Report`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks.paging.contiguous_run import run_contiguous
from benchmarks.paging.paged_run import Conditions, MemoryUse, PagedMeasurement, run_paged
from benchmarks.paging.trace import TracedRequest
from octavo.errors import InvalidSpec
from octavo_engine.scheduling.kv_groups import KVCacheGroup

CONDITIONS: Final = Conditions(max_model_len=8192, max_tokens=1000, max_num_batched_tokens=2048)
"""A common context length that holds the trace, and the 1000 tokens at which the trace's outputs stop."""

FULL: Final = (KVCacheGroup(layers=(0,)),)
FULL_AND_WINDOW: Final = (KVCacheGroup(layers=(0,)), KVCacheGroup(layers=(1,), window=512))

RESERVATIONS: Final[dict[str, Callable[[TracedRequest], int]]] = {
    "max_model_len": lambda _: CONDITIONS.max_model_len,
    "prompt_and_max_tokens": lambda request: request.num_prompt_tokens + CONDITIONS.max_tokens,
    "true_length": lambda request: request.num_tokens,
}
"""What contiguous memory can set aside; the last knows the future, which no server does."""

RETEST: Final = (
    "A change in engine/octavo_engine/scheduling/ that alters which sequences run, in benchmarks/paging/ or "
    "in the trace. "
    "tests/benchmarks repeats a run and fails then; renew with python -m benchmarks.paging --write"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One size of memory, cut into blocks of one size, for one kind of model."""

    pool_slots: int
    """One slot holds one token for the layers of one KV-cache group."""
    block_size: int
    groups: tuple[KVCacheGroup, ...] = FULL

    @property
    def layers(self) -> str:
        """The KV-cache groups in words."""
        return " + ".join(
            "full" if group.window is None else f"window {group.window}" for group in self.groups
        )


SCENARIOS: Final = (
    *(
        Scenario(pool_slots=pool_slots, block_size=block_size)
        for pool_slots in (32_768, 65_536, 131_072)
        for block_size in (16, 32, 64)
    ),
    Scenario(pool_slots=65_536, block_size=16, groups=FULL_AND_WINDOW),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All measurements of one scenario."""

    pool_slots: int
    block_size: int
    layers: str
    paged: PagedMeasurement
    contiguous: dict[str, MemoryUse]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result, with all that is needed to judge it and to repeat it."""

    date: str
    workload: str
    conditions: dict[str, int | str]
    retest: str
    rows: tuple[Row, ...]


def build_report(
    requests: SequenceOf[TracedRequest],
    *,
    trace_name: str,
    date: str,
    scenarios: SequenceOf[Scenario] = SCENARIOS,
    on_finished: Callable[[int], object] = lambda _: None,
) -> Report:
    """Run all scenarios; `on_finished` hears of the requests that end in paged runs."""
    check_requests(requests)
    return Report(
        date=date,
        workload=_workload(requests, trace_name),
        conditions={
            **asdict(CONDITIONS),
            "arrival": "all requests queued at the start; the number of sequences is bounded by memory alone",
            "prefix_sharing": "none between requests; a preempted sequence may find its own blocks again",
            "machine": "of no effect: steps and slots are counted, no time is measured",
        },
        retest=RETEST,
        rows=tuple(measure(requests, scenario, on_finished) for scenario in scenarios),
    )


def check_requests(requests: SequenceOf[TracedRequest]) -> None:
    """Refuse a trace that the conditions do not cover."""
    for number, request in enumerate(requests, start=1):
        if request.num_tokens > CONDITIONS.max_model_len or request.num_output_tokens > CONDITIONS.max_tokens:
            raise InvalidSpec(
                f"--trace: request {number} has {request.num_prompt_tokens} + {request.num_output_tokens} "
                f"tokens, over {CONDITIONS.max_model_len} in all or {CONDITIONS.max_tokens} of output; "
                "take it out of the trace, or end the workload before it with --requests"
            )


def measure(
    requests: SequenceOf[TracedRequest], scenario: Scenario, on_finished: Callable[[int], object]
) -> Row:
    """The paged run, and a contiguous one for each way to reserve."""
    paged = run_paged(
        requests,
        conditions=CONDITIONS,
        groups=scenario.groups,
        pool_slots=scenario.pool_slots,
        block_size=scenario.block_size,
        on_finished=on_finished,
    )
    contiguous = {
        name: run_contiguous(
            requests,
            reserved_tokens=reserved_tokens,
            groups=scenario.groups,
            num_slots=scenario.pool_slots,
            max_num_batched_tokens=CONDITIONS.max_num_batched_tokens,
        )
        for name, reserved_tokens in RESERVATIONS.items()
    }
    return Row(
        pool_slots=scenario.pool_slots,
        block_size=scenario.block_size,
        layers=scenario.layers,
        paged=paged,
        contiguous=contiguous,
    )


def _workload(requests: SequenceOf[TracedRequest], trace_name: str) -> str:
    prompts = sum(request.num_prompt_tokens for request in requests)
    outputs = sum(request.num_output_tokens for request in requests)
    longest = max(request.num_tokens for request in requests)
    return (
        f"{len(requests)} requests of {trace_name}: {prompts / len(requests):.0f} prompt and "
        f"{outputs / len(requests):.0f} output tokens in the mean, the longest {longest} in all"
    )
