"""A tiny random Llama with a trained tokenizer: a folder as the server wants it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from octavo_engine.config import EngineConfig
from octavo_engine.llm_engine import LLMEngine
from tests.octavo_engine.oracle import save_tiny_model
from tests.octavo_engine.server.running_server import (
    MODEL,
    RunningServer,
    running_server,
    serve_options,
    write_text_files,
)
from tests.octavo_engine.text.small_tokenizers import SPECIAL

TEXT = [
    "The octavo is a sheet folded three times, so that eight leaves and sixteen pages come of it.",
    "Eine Katze, zwei Katzen, drei Hunde; und der Mond über dem Haus. 👋 naïve café 日本語",
] * 5
VOCAB_SIZE = 320


def trained_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def write_tiny_model(folder: Path, **text_files: Any) -> Path:
    """Weights, tokenizer and template; `text_files` goes to `write_text_files`."""
    save_tiny_model(folder, vocab_size=VOCAB_SIZE)
    return write_text_files(folder, trained_tokenizer(), **text_files)


@contextlib.contextmanager
def tiny_server(
    model_dir: Path, *, options: dict[str, Any] | None = None, **settings: Any
) -> Iterator[RunningServer]:
    """The real engine with the folder's model behind the real server."""
    settings = {"dtype": "float32", "num_kv_blocks": 64, "max_num_seqs": 8, **settings}
    config = EngineConfig(model_dir=model_dir, served_model_name=MODEL, **settings)
    served = serve_options(model_dir, **(options or {}))
    with running_server(served, lambda: LLMEngine.load(config)) as running:
        yield running
