"""Which token ids exist and which end a text, from the files beside the weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from octavo_engine.errors import UnsupportedModel
from octavo_engine.models.loading import read_model_json
from octavo_engine.models.nested_text import text_config


def read_num_token_ids(model_dir: Path, *, vocab_size: int, num_named_ids: int | None = None) -> int:
    """Ids below this have a text; the rest of `vocab_size` pads the matrix and must not be drawn.

    `num_named_ids` is what a weight file says of it, for where no tokenizer.json does.
    """
    tokenizer = read_model_json(model_dir, "tokenizer.json", required=False)
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    highest = -1
    if isinstance(vocabulary, Mapping):
        highest = max((int(token_id) for token_id in vocabulary.values()), default=-1)
    elif isinstance(vocabulary, list):
        highest = len(vocabulary) - 1
    added = tokenizer.get("added_tokens")
    if isinstance(added, list):
        highest = max([highest, *(int(token["id"]) for token in added)])
    if highest < 0:
        return min(vocab_size, num_named_ids or vocab_size)
    return min(vocab_size, highest + 1)


def read_eos_token_ids(model_dir: Path, config: Mapping[str, object]) -> frozenset[int]:
    """Ids that end a text: those of `generation_config.json`, or else those of `config.json`.

    The tokenizer's own end token ends a text besides: trained for chat, many models name it there alone.
    """
    own = _end_of_tokenizer(model_dir)
    stated = _stated_ends(model_dir, config)
    return stated if own is None else stated | {own}


def _stated_ends(model_dir: Path, config: Mapping[str, object]) -> frozenset[int]:
    generation = read_model_json(model_dir, "generation_config.json", required=False)
    sources = (
        ("generation_config.json", generation),
        ("config.json", config),
        ("config.json's text_config", text_config(config)),
    )
    for name, source in sources:
        stated = source.get("eos_token_id")
        if stated is None:
            continue
        ids = stated if isinstance(stated, list) else [stated]
        if not all(isinstance(token_id, int) for token_id in ids):
            raise UnsupportedModel(f"{name}: eos_token_id must be an id or a list of ids, got {stated!r}")
        return frozenset(ids)
    return frozenset()


def _end_of_tokenizer(model_dir: Path) -> int | None:
    stated = read_model_json(model_dir, "tokenizer_config.json", required=False).get("eos_token")
    text = stated.get("content") if isinstance(stated, Mapping) else stated
    if not isinstance(text, str):
        return None
    tokenizer = read_model_json(model_dir, "tokenizer.json", required=False)
    added = tokenizer.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        if token.get("content") == text:
            return int(token["id"])
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    token_id = vocabulary.get(text) if isinstance(vocabulary, Mapping) else None
    return token_id if isinstance(token_id, int) else None
