"""What the hub of the tests and of the demo holds."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.model_hub.store import HubStore
from tests.support.sample_model import REPOSITORY, sample_model_dir

SAMPLE: Final = REPOSITORY
DEFAULT_SYSTEM_MESSAGE: Final = "{% if loop.first and messages[0]['role'] != 'system' %}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyRepositories:
    """Small models, each with one thing wrong."""

    missing_file: str = "octavo-tests/missing-file"
    digest_mismatch: str = "octavo-tests/digest-mismatch"
    gated: str = "octavo-tests/gated"


FAULTY: Final = FaultyRepositories()
TINY_CONFIG: Final[Mapping[str, object]] = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
    "model_type": "llama",
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 49152,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """The commits of the sample model's repository."""

    first: str
    """Tagged `v1`: its chat template adds no system message."""
    second: str
    """On `main`: the files of the original."""


def seed_store(store: HubStore) -> Seeded:
    """Fill `store` with the sample model in two commits and the repositories with faults; repeatable."""
    model = sample_model_dir()
    files: dict[str, Path | bytes] = {path.name: path for path in sorted(model.iterdir()) if path.is_file()}
    seeded = _seed_sample(store, files)
    tokenizer = {name: files[name] for name in files if "token" in name}
    tiny = {"config.json": json.dumps(TINY_CONFIG).encode(), "model.safetensors": tiny_weights(), **tokenizer}
    for repo in (FAULTY.missing_file, FAULTY.digest_mismatch, FAULTY.gated):
        if repo not in store.repositories():
            store.add_commit(repo, tiny, message="A tiny model")
    store.hide(FAULTY.missing_file, "model.safetensors")
    store.corrupt(FAULTY.digest_mismatch, "model.safetensors")
    store.gate(FAULTY.gated)
    return seeded


def _seed_sample(store: HubStore, files: Mapping[str, Path | bytes]) -> Seeded:
    if SAMPLE in store.repositories():
        tags, branches = store.refs(SAMPLE, "tags"), store.refs(SAMPLE, "heads")
        return Seeded(first=tags["v1"], second=branches["main"])
    earlier = {**files, **_earlier_files(files)}
    first = store.add_commit(SAMPLE, earlier, message="Add the model")
    second = store.add_commit(SAMPLE, files, message="Name the assistant when no system message is given")
    store.tag(SAMPLE, "v1", first)
    return Seeded(first=first, second=second)


def _earlier_files(files: Mapping[str, Path | bytes]) -> dict[str, bytes]:
    """The first commit's differences: a chat template that renders other prompts, and a note for people."""
    config = json.loads(_text(files["tokenizer_config.json"]))
    template = config["chat_template"]
    if DEFAULT_SYSTEM_MESSAGE not in template:
        raise RuntimeError("the sample model's chat template no longer adds a default system message")
    config["chat_template"] = template.replace(DEFAULT_SYSTEM_MESSAGE, "{% if false %}")
    readme = _text(files["README.md"]) + "\nVersion 1: the chat template adds no system message of its own.\n"
    return {"tokenizer_config.json": json.dumps(config, indent=2).encode(), "README.md": readme.encode()}


def _text(source: Path | bytes) -> str:
    return source.decode() if isinstance(source, bytes) else source.read_text()


def tiny_weights() -> bytes:
    """A safetensors file of zeros with the shapes of `TINY_CONFIG`: it loads, and it says nothing."""
    layer = "model.layers.0"
    shapes = {
        "model.embed_tokens.weight": (49152, 32),
        "model.norm.weight": (32,),
        f"{layer}.input_layernorm.weight": (32,),
        f"{layer}.post_attention_layernorm.weight": (32,),
        f"{layer}.self_attn.q_proj.weight": (32, 32),
        f"{layer}.self_attn.k_proj.weight": (16, 32),
        f"{layer}.self_attn.v_proj.weight": (16, 32),
        f"{layer}.self_attn.o_proj.weight": (32, 32),
        f"{layer}.mlp.gate_proj.weight": (64, 32),
        f"{layer}.mlp.up_proj.weight": (64, 32),
        f"{layer}.mlp.down_proj.weight": (32, 64),
    }
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)
