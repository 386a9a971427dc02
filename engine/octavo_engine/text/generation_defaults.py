"""Sampling defaults that the model's authors ship in generation_config.json.

End-of-sequence ids are read by the engine itself; here are only the values that a request may leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo_engine.text.tokenizer import read_json_object


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """What a request gets for a field it does not set. Without a file: the OpenAI API's own defaults."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


def parse_generation_defaults(config: Mapping[str, object]) -> GenerationDefaults:
    """Defaults from a generation_config.json; null and absent fields keep the API's default."""
    return GenerationDefaults(
        temperature=_number(config, "temperature", 1.0),
        top_p=_number(config, "top_p", 1.0),
        top_k=int(_number(config, "top_k", 0)),
        min_p=_number(config, "min_p", 0.0),
        repetition_penalty=_number(config, "repetition_penalty", 1.0),
    )


def _number(config: Mapping[str, object], name: str, default: float) -> float:
    value = config.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def load_generation_defaults(model_dir: Path) -> GenerationDefaults:
    """Those of a model's folder."""
    return parse_generation_defaults(read_json_object(model_dir / "generation_config.json"))
