"""A pod's memory limit is planned, and holds whatever shapes the batches take."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from random import Random

import httpx
import pytest

from octavo.architecture import parse_architecture
from octavo.planning import MemoryPlan, Workload, plan_cpu
from tests.octavo_engine.server.running_server import MODEL
from tests.octavo_engine.server.served_process import anonymous_bytes, serve_process
from tests.support.sample_model import sample_model_dir

pytestmark = [pytest.mark.model, pytest.mark.slow]

DOCKERFILE = Path(__file__).resolve().parents[3] / "engine/Dockerfile"
NUM_SEQUENCES = 34
NUM_REQUESTS = 160
CONTEXT = 512


def image_environment() -> dict[str, str]:
    """What the image sets for its memory allocator."""
    return dict(re.findall(r"\b(MALLOC_\w+)=(\w+)", DOCKERFILE.read_text()))


def plan(model_dir: Path) -> MemoryPlan:
    architecture = parse_architecture(json.loads((model_dir / "config.json").read_text()))
    workload = Workload(max_model_len=CONTEXT, max_num_seqs=NUM_SEQUENCES, for_sequences=2)
    planned = plan_cpu(architecture, workload, memory_limit_bytes=None)
    assert isinstance(planned, MemoryPlan)
    return planned


async def ask_all(port: int) -> None:
    """Prompts and answers of all lengths, as many at once as the engine takes."""
    random, places = Random(5), asyncio.Semaphore(NUM_SEQUENCES)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:

        async def ask() -> None:
            prompt = [random.randint(1000, 9000) for _ in range(random.randint(1, 90))]
            body = {"model": MODEL, "prompt": prompt, "max_tokens": random.randint(4, 40), "ignore_eos": True}
            async with places:
                (await client.post("/v1/completions", json=body)).raise_for_status()

        await asyncio.gather(*(ask() for _ in range(NUM_REQUESTS)))


@pytest.mark.timeout(900)
def test_pod_stays_within_its_planned_limit_when_batches_take_many_shapes() -> None:
    """Pods under load were killed for memory: oneDNN kept code and buffers for each shape that it saw."""
    model_dir = Path(sample_model_dir())
    planned = plan(model_dir)
    flags = [
        *("--dtype", "bfloat16", "--max-model-len", str(CONTEXT), "--max-num-seqs", str(NUM_SEQUENCES)),
        *("--planned-kv-blocks", str(planned.kv_blocks), "--memory-limit", str(planned.memory_limit_bytes)),
    ]
    with serve_process(model_dir, *flags, "--log-requests", "off", **image_environment()) as (
        process,
        client,
    ):
        asyncio.run(ask_all(client.base_url.port or 0))
        assert anonymous_bytes(process.pid) < planned.memory_limit_bytes
