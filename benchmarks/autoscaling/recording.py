"""`python -m benchmarks.autoscaling.recording`: steps of the real engine on a CPU, with what each computed.

The simulator's law of a step is checked against them. A small random model serves random requests; the time
of a step is the CPU time of the process, since the machine was shared while it was recorded.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import torch
from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

from octavo_engine.config import EngineConfig
from octavo_engine.llm_engine import LLMEngine
from octavo_engine.requests import EngineRequest, SamplingParams
from octavo_engine.scheduling.batch_layout import BatchLayout
from octavo_engine.scheduling.scheduler import ScheduledSequence
from octavo_engine.scheduling.step_sums import StepSums

RECORDED: Final = Path(__file__).with_name("recorded_steps.json")
NUM_REQUESTS: Final = 100
SHAPE: Final[dict[str, Any]] = {
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
CONDITIONS: Final = {
    "model": "random Llama of 2 layers, width 256, 4 heads over 2 key-value heads, float32",
    "engine": "octavo-engine in this repository, one CPU thread, 512 tokens a step, prefix cache off",
    "workload": "100 requests, prompts of 8 to 900 tokens, outputs of 1 to 40, up to 16 in flight",
    "time": "CPU seconds of the process; the machine was shared",
    "retest": "A change of the engine's step loop, kernels or scheduler that alters what a step costs",
}


class RecordedSums(StepSums):
    """Keeps each step's terms apart."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[float]] = []

    def add(self, scheduled: Sequence[ScheduledSequence], layout: BatchLayout) -> None:
        before = (self.prefill_tokens, self.group_context_tokens, self.sequences)
        super().add(scheduled, layout)
        after = (self.prefill_tokens, self.group_context_tokens, self.sequences)
        attention = sum(
            item.num_own_tokens * (item.sequence.num_computed_tokens + item.num_own_tokens / 2)
            for item in scheduled
            if item.num_own_tokens > 1
        )
        self.rows.append([late - early for late, early in zip(after, before, strict=True)] + [attention])


def record() -> list[list[float]]:
    """Rows of prefill tokens, context tokens, sequences, attention, and seconds."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        engine = LLMEngine.load(
            EngineConfig(
                model_dir=_save_model(Path(folder)),
                served_model_name="recorded",
                dtype="float32",
                num_kv_blocks=1200,
                max_num_batched_tokens=512,
                enable_prefix_caching=False,
            )
        )
        sums = RecordedSums()
        engine._sums = sums  # the engine exports totals only; each step is wanted here
        seconds = _serve(engine)
    return [[*row, spent] for row, spent in zip(sums.rows, seconds, strict=True)]


def _save_model(folder: Path) -> Path:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SHAPE)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def _serve(engine: LLMEngine) -> list[float]:
    draws = random.Random(5)
    waiting = [_request(number, draws) for number in range(NUM_REQUESTS)]
    in_flight, seconds = 0, []
    with tqdm(total=NUM_REQUESTS, unit=" requests") as bar:
        while waiting or engine.has_work():
            while waiting and in_flight < 16 and draws.random() < 0.4:
                assert engine.add_request(waiting.pop()) is None
                in_flight += 1
            if not engine.has_work():
                continue
            began = time.process_time()
            events = engine.step(0.0)
            seconds.append(time.process_time() - began)
            ended = sum(event.finish_reason is not None for event in events)
            in_flight -= ended
            bar.update(ended)
    return seconds


def _request(number: int, draws: random.Random) -> EngineRequest:
    length = draws.choice((8, 40, 150, 400, 900))
    return EngineRequest(
        request_id=f"request-{number}",
        prompt_token_ids=tuple(draws.randint(3, 1000) for _ in range(length)),
        params=SamplingParams(max_tokens=draws.randint(1, 40), temperature=0.0, ignore_eos=True),
        arrival=0.0,
    )


def main() -> None:
    """Record anew."""
    rows = [[*(round(value, 1) for value in row[:4]), round(row[4], 6)] for row in record()]
    document = {
        "date": date.today().isoformat(),
        **CONDITIONS,
        "columns": ["prefill_tokens", "context_tokens", "sequences", "prefill_times_context", "seconds"],
    }
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = json.dumps(document, indent=1)[:-2]
    RECORDED.write_text(f'{head},\n "steps": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
