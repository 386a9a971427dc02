"""A process that answers for any number of engines, each on a loopback address of its own.

The page is the one that the engine's own collector writes after it has served requests, so that it has the
real length; it is made once, because what is measured is the reader.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from octavo import engine_contract as contract
from octavo_engine.engine_facts import EngineFacts, EngineStats, LayerKernels, MeasuredSpeed
from octavo_engine.server.metrics import EngineCollector, Identity, metrics_page
from octavo_engine.server.request_timing import RequestTimings

FACTS: Final = EngineFacts(
    device="cpu",
    dtype="bfloat16",
    kv_dtype="bfloat16",
    kernels=(LayerKernels(kind="full attention", num_layers=32, path="reference", reason=""),),
    block_size=16,
    block_bytes=2**21,
    num_kv_blocks=4096,
    kv_blocks_bound="memory",
    measured_kv_blocks=4096,
    planned_kv_blocks=4096,
    capacity_tokens=65_536,
    context_len=16_384,
    max_model_len=16_384,
    max_num_seqs=256,
    max_num_batched_tokens=512,
    max_waiting=1024,
    prefix_caching=True,
    speculative_ngram=0,
    kv_bytes_per_token=131_072,
    weights_bytes=16 * 10**9,
    memory_limit_bytes=2**35,
    num_threads=8,
    eos_token_ids=frozenset({2}),
    vocab_size=128_256,
    revision="0123456789abcdef0123456789abcdef01234567",
    speed=MeasuredSpeed(read_bytes_per_second=2e10, gemm_flop_per_second=1e12, step_seconds=0.9),
)
STATS: Final = EngineStats(
    num_running=31,
    num_waiting=4,
    kv_tokens_per_block=16.0,
    blocks_total=4096,
    blocks_referenced=2345,
    blocks_cached=1200,
    blocks_free=551,
    admitted=123_456,
    preemptions=12,
    recomputed_tokens=34_567,
    prompt_tokens=98_765_432,
    cached_prompt_tokens=12_345_678,
    generated_tokens=23_456_789,
    draft_tokens=0,
    accepted_draft_tokens=0,
    failed_rows=0,
    uncached_prompt_tokens_squared=10**11,
    uncached_prompt_buckets=tuple(range(1, len(contract.UNCACHED_PROMPT_BOUNDS) + 2)),
    output_tokens=23_400_000,
    output_buckets=tuple(range(1, len(contract.OUTPUT_BOUNDS) + 2)),
    steps=1_234_567,
    step_seconds=98_765.4321,
    step_prefill_tokens=86_419_754,
    step_context_tokens=1.2345e12,
    step_sequences=38_271_577,
)


def build_page() -> bytes:
    """As a busy engine's /metrics answers."""
    identity = Identity(
        model_name="model", revision=FACTS.revision, manifest_digest="sha256:0", version="0.1.0"
    )
    collector = EngineCollector(
        identity=identity,
        facts=FACTS,
        timings=RequestTimings(clock=lambda: 0.0),
        stats=lambda: STATS,
        is_draining=lambda: False,
    )
    return metrics_page(collector)


async def serve(port: int) -> None:
    """On every loopback address; the port is printed when it answers."""
    page = build_page()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(page)}\r\nConnection: close\r\n\r\n".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + page)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], len(page), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
