"""What one engine process is told when it starts.

Everything that is derived (dtype actually used, number of blocks, context length that fits) is not
here but in `EngineFacts`: this is the question, that is the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from octavo import engine_contract as contract
from octavo.errors import InvalidSpec

DTYPES = ("auto", "bfloat16", "float16", "float32")
KV_CACHE_DTYPES = ("auto", "float32", "bf16", "fp16")
DEVICES = contract.ENGINE_DEVICES
ADAPTER_NAME = re.compile(r"[A-Za-z0-9._:/+@-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Arguments of one engine; invalid combinations are refused when the value is made."""

    model_dir: Path
    served_model_name: str
    revision: str = ""
    """The commit the files were fetched at; empty for a directory of unknown origin."""
    dtype: str = "auto"
    """Of weights and activations; `auto` is the checkpoint's own, bfloat16 where that is float32."""
    kv_cache_dtype: str = "auto"
    """`auto` is that of the activations."""
    device: str = "cpu"
    max_model_len: int | None = None
    """None: the model's own, lowered to what the pool holds."""
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    block_size: int = 16
    planned_kv_blocks: int | None = None
    """What the operator planned; the engine allocates the lesser of this and what it measured."""
    num_kv_blocks: int | None = None
    """Exactly this many usable blocks, without measuring (tests and benchmarks)."""
    memory_limit_bytes: int | None = None
    """None: the cgroup's limit, or else 90 % of what the machine has available."""
    max_waiting: int = 1024
    """Requests that may wait; one more is refused."""
    enable_prefix_caching: bool = True
    adapters: tuple[tuple[str, Path], ...] = ()
    """LoRA adapters to load at start: names and folders."""
    max_adapters: int = 0
    """Adapters that room is kept for; 0: the engine takes none."""
    max_adapter_rank: int = 16
    speculative_ngram: int = 0
    """Tokens guessed ahead in a step from what a text repeats; 0 is off. No text changes by it."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be right, by name."""
        for name, allowed in (("dtype", DTYPES), ("kv_cache_dtype", KV_CACHE_DTYPES), ("device", DEVICES)):
            value = getattr(self, name)
            if value not in allowed:
                raise InvalidSpec(f"{name}: must be one of {', '.join(allowed)}, got {value!r}")
        for name in (
            "max_num_seqs",
            "max_num_batched_tokens",
            "block_size",
            "max_waiting",
            "max_adapter_rank",
        ):
            _require_positive(name, getattr(self, name))
        for name in ("max_model_len", "planned_kv_blocks", "num_kv_blocks", "memory_limit_bytes"):
            if getattr(self, name) is not None:
                _require_positive(name, getattr(self, name))
        for name in ("speculative_ngram", "max_adapters"):
            if getattr(self, name) < 0:
                raise InvalidSpec(f"{name}: must be at least 0, got {getattr(self, name)}")
        self._check_adapters()

    def _check_adapters(self) -> None:
        names = [name for name, _ in self.adapters]
        if len(names) > self.max_adapters:
            raise InvalidSpec(f"max_adapters: {len(names)} are to be loaded, but at most {self.max_adapters}")
        for name in names:
            require_adapter_name(name, served_model_name=self.served_model_name)
        if len(set(names)) < len(names):
            raise InvalidSpec(f"adapters: a name is given twice in {', '.join(names)}")


def require_adapter_name(name: str, *, served_model_name: str) -> None:
    """Refuse a name that could not be asked for, or told apart in metrics."""
    if ADAPTER_NAME.fullmatch(name) is None:
        raise InvalidSpec(
            f"adapter {name[:200]!r}: a name has 1 to 128 letters, digits and the signs . _ : / + @ -"
        )
    if name == served_model_name:
        raise InvalidSpec(f"adapter {name!r}: this is the name of the model itself; choose another")


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise InvalidSpec(f"{name}: must be at least 1, got {value}")
