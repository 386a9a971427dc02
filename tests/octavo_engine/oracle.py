"""Tiny random checkpoints, and what `transformers` says that a model should generate.

Where the oracle's best scores lie within `NEAR_TIE` of each other either token is right: rounding
decides, and it differs between batch shapes. Such places are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from octavo_engine.config import EngineConfig
from octavo_engine.llm_engine import LLMEngine
from octavo_engine.requests import EngineRequest, SamplingParams, TokenEvent

NEAR_TIE = 1e-4
GREEDY = {"temperature": 0.0, "ignore_eos": True}
TINY: Mapping[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def save_tiny_model(directory: Path, config_class: str = "LlamaConfig", **changes: object) -> Path:
    """Write a random checkpoint of a real architecture; random norms too, so that none goes unnoticed."""
    torch.manual_seed(0)
    config = getattr(transformers, config_class)(**{**TINY, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config)
    unsettle_norms(model)
    model.save_pretrained(directory)
    return directory


def unsettle_norms(model: Any) -> None:
    """Move norms and biases from the ones and zeros that they start as."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(0.2 * torch.randn_like(parameter))


def save_repeating_model(directory: Path, *, vocab_size: int) -> Path:
    """With few token ids, and the last one likely again: its texts repeat themselves, as drafts need."""
    return save_tiny_model(directory, num_hidden_layers=2, vocab_size=vocab_size, tie_word_embeddings=True)


def load_oracle(model_dir: Path) -> transformers.PreTrainedModel:
    """The same checkpoint in transformers, float32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    model.generation_config.eos_token_id = None  # else its minimum length forbids the token altogether
    return model


def oracle_greedy(model: Any, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """`generate` without sampling and without stopping."""
    ids = torch.tensor([list(prompt)])
    config = transformers.GenerationConfig(
        max_new_tokens=num_tokens,
        min_new_tokens=num_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    return out[0, len(prompt) :].tolist()


def count_near_ties(model: Any, prompt: Sequence[int], output: Sequence[int]) -> int:
    """Places where `output` is not the oracle's first choice; fails unless each is a near tie."""
    with torch.no_grad():
        scores = model(torch.tensor([[*prompt, *output]])).logits[0, len(prompt) - 1 : -1].float()
    behind = scores.max(dim=-1).values - scores[range(len(output)), list(output)]
    assert float(behind.max()) <= NEAR_TIE, (
        f"token {int(behind.argmax())}: {float(behind.max()):.2e} behind the oracle's choice"
    )
    return int((behind > 0).sum())


@dataclass(frozen=True)
class Prompted:
    """A prompt and the oracle's greedy continuation."""

    prompt: tuple[int, ...]
    expected: list[int]


def random_prompts(
    count: int, *, vocab_size: int = 256, shortest: int = 1, longest: int = 60
) -> list[tuple[int, ...]]:
    """Prompts of different lengths, some of a whole number of blocks."""
    generator = torch.Generator().manual_seed(7)
    lengths = [shortest + (index * (longest - shortest)) // max(1, count - 1) for index in range(count)]
    return [
        tuple(torch.randint(3, vocab_size, (length,), generator=generator).tolist()) for length in lengths
    ]


def load_engine(model_dir: Path, **changes: Any) -> LLMEngine:
    """An engine in float32 with a pool of its own size, without measuring."""
    settings = {"dtype": "float32", "num_kv_blocks": 400, "max_num_batched_tokens": 64, **changes}
    return LLMEngine.load(EngineConfig(model_dir=model_dir, served_model_name="tiny", **settings))


def request(
    request_id: str,
    prompt: Sequence[int],
    num_tokens: int = 16,
    *,
    salt: str = "",
    adapter: str = "",
    **params: Any,
) -> EngineRequest:
    """A request, greedy and without end unless said otherwise."""
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(max_tokens=num_tokens, **{**GREEDY, **params}),
        arrival=0.0,
        cache_salt=salt,
        adapter=adapter,
    )


def run_until_idle(
    engine: LLMEngine, requests: Sequence[EngineRequest], *, preempting: bool = False
) -> dict[str, list[TokenEvent]]:
    """Add all at once and step to the end, if asked with a preemption after every step that drew a token.

    (Preempted before it draws one, and computed in small chunks, a sequence would never end.)
    Integrity is checked at every step.
    """
    for item in requests:
        refusal = engine.add_request(item)
        assert refusal is None, refusal
    events: dict[str, list[TokenEvent]] = {item.request_id: [] for item in requests}
    while engine.has_work():
        drawn = engine.step(0.0)
        for event in drawn:
            events[event.request_id].append(event)
        if preempting and drawn:
            engine.preempt_newest()
        engine.check_integrity()
    return events


def tokens_of(events: Sequence[TokenEvent]) -> list[int]:
    """All tokens of one request; its last event, and no other, must say why it ended."""
    assert [event.finish_reason is not None for event in events] == [False] * (len(events) - 1) + [True]
    return [token_id for event in events for token_id in event.token_ids]


def generate(
    engine: LLMEngine, requests: Sequence[EngineRequest], *, preempting: bool = False
) -> list[list[int]]:
    """The tokens of all requests, in order."""
    events = run_until_idle(engine, requests, preempting=preempting)
    return [tokens_of(events[item.request_id]) for item in requests]


def expect_short_outputs(engine: LLMEngine) -> None:
    """Let the engine see short outputs only, so that it admits more than fits and must preempt later."""
    run_until_idle(engine, [request(f"short-{index}", [5, 6], 1) for index in range(32)])
