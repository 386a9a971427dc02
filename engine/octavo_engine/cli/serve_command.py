"""`octavo-engine serve`: flags to configuration, then the serving process."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from octavo import engine_contract as contract
from octavo.errors import InvalidSpec
from octavo_engine.cli.loading_progress import LoadingProgress

if TYPE_CHECKING:
    from octavo_engine.config import EngineConfig
    from octavo_engine.fetching.manifest import Manifest
    from octavo_engine.server.engine_port import Engine
    from octavo_engine.server.process import ServeOptions
    from octavo_engine.what_runs import Identity

NAME: Final = "serve"
SUMMARY: Final = "Serve the model in a folder over the OpenAI API."

SPARE_ADAPTERS: Final = 4
"""That room is kept for where clients may load some."""

UNITS: Final = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "K": 10**3, "M": 10**6, "G": 10**9}

logger = logging.getLogger("octavo_engine.serve")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of the contract with the operator, and a few for people."""
    add_model_flags(parser)
    add_memory_flags(parser)
    _add_server_flags(parser)
    _add_access_flags(parser)


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Which model, under which name, in which form."""
    group = parser.add_argument_group("model")
    group.add_argument(
        contract.FLAG_MODEL, required=True, type=Path, metavar="PATH", help="its folder, or a GGUF file"
    )
    group.add_argument(
        contract.FLAG_SERVED_MODEL_NAME, metavar="NAME", help="its name in the API (default: the folder's)"
    )
    group.add_argument(
        contract.FLAG_REVISION, default="", metavar="COMMIT", help="refuse a folder fetched at another commit"
    )
    group.add_argument(
        "--dtype",
        choices=("auto", "bfloat16", "float16", "float32"),
        default="auto",
        help="of weights and activations (default auto: the checkpoint's; bfloat16 for one in float32)",
    )
    group.add_argument("--device", choices=contract.ENGINE_DEVICES, default="cpu", help="where it runs")
    _add_adapter_flags(parser)


def _add_adapter_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("LoRA adapters")
    group.add_argument(
        "--lora",
        type=parse_adapter,
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="serve the adapter in a folder (PEFT's form) as the model NAME; may be repeated",
    )
    group.add_argument(
        "--allow-runtime-lora",
        action="store_true",
        help="let clients load adapters from any folder that this process can read, and unload them",
    )
    group.add_argument(
        "--max-loras",
        type=int,
        metavar="N",
        help="adapters to keep memory for (default: those of --lora; 4 more with --allow-runtime-lora)",
    )
    group.add_argument(
        "--max-lora-rank",
        type=int,
        default=16,
        metavar="R",
        help="highest rank to keep memory for (default: 16)",
    )


def add_memory_flags(parser: argparse.ArgumentParser) -> None:
    """How much it may take and how many it serves."""
    group = parser.add_argument_group("memory and batching")
    group.add_argument(
        contract.FLAG_MAX_MODEL_LEN, type=int, metavar="TOKENS", help="context length (default: the model's)"
    )
    group.add_argument(
        contract.FLAG_MAX_NUM_SEQS, type=int, default=64, metavar="N", help="that run at once (default: 64)"
    )
    group.add_argument(
        contract.FLAG_MAX_NUM_BATCHED_TOKENS,
        type=int,
        default=512,
        metavar="N",
        help="tokens in one step (default: 512)",
    )
    group.add_argument(
        "--max-waiting", type=int, default=1024, metavar="N", help="more requests get 429 (default: 1024)"
    )
    group.add_argument(
        contract.FLAG_BLOCK_SIZE, type=int, default=16, metavar="TOKENS", help="in one block (default: 16)"
    )
    group.add_argument(
        contract.FLAG_KV_CACHE_DTYPE,
        choices=("auto", "float32", "bf16", "fp16"),
        default="auto",
        help="of the KV cache (default auto: that of the activations)",
    )
    group.add_argument(
        contract.FLAG_PLANNED_KV_BLOCKS, type=int, metavar="N", help="allocate at most so many blocks"
    )
    group.add_argument(
        contract.FLAG_NO_PREFIX_CACHING,
        dest="enable_prefix_caching",
        action="store_false",
        help="compute every prompt in full, also where it begins as an earlier one",
    )
    group.add_argument(
        "--speculative-ngram",
        type=int,
        default=0,
        metavar="N",
        help="guess up to N tokens ahead from what a text repeats, checked in the same step (default 0: off)",
    )
    group.add_argument(
        "--memory-limit",
        type=parse_bytes,
        metavar="SIZE",
        help="as 2Gi (default: the container's limit, else 90%% of what is available)",
    )


def _add_server_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument(contract.FLAG_HOST, default="127.0.0.1", help="(default: 127.0.0.1)")
    group.add_argument(contract.FLAG_PORT, type=int, default=contract.DEFAULT_PORT, help="(default: 8000)")
    group.add_argument(
        contract.FLAG_DRAIN_ACCEPT_SECONDS,
        type=float,
        default=10.0,
        metavar="S",
        help="after SIGTERM: still serve so long, while endpoints forget this server (default: 10)",
    )
    group.add_argument(
        contract.FLAG_SHUTDOWN_TIMEOUT,
        type=float,
        default=30.0,
        metavar="S",
        help="then: let running requests finish for so long (default: 30)",
    )


def _add_access_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("clients")
    group.add_argument(
        contract.FLAG_API_KEY,
        action="append",
        default=[],
        metavar="KEY",
        help="ask for this key; may be repeated. Other users of the machine see flags: "
        f"{contract.API_KEY_VARIABLE}, keys separated by commas, does the same",
    )
    group.add_argument(
        "--log-requests",
        choices=("off", "summary", "prompts"),
        default="summary",
        help="a line for each request: none, counts and times (default), or also the prompts",
    )


def parse_bytes(text: str) -> int:
    """A size as Kubernetes writes it.

    >>> parse_bytes("2Gi")
    2147483648
    """
    match = re.fullmatch(r"(\d+)([KMG]i?)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 800Mi or 2Gi")
    return int(match[1]) * UNITS[match[2] or ""]


def parse_adapter(text: str) -> tuple[str, Path]:
    """A name and a folder.

    >>> parse_adapter("sql=/adapters/sql")
    ('sql', PosixPath('/adapters/sql'))
    """
    name, _, folder = text.partition("=")
    if not name or not folder:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=DIR")
    return name, Path(folder)


def run(arguments: argparse.Namespace) -> None:
    """Serve until interrupted."""
    import asyncio

    from octavo_engine.server.process import bind, serve_until_signalled

    manifest = open_folder(arguments.model, arguments.revision)
    config = engine_config(arguments, manifest)
    options = _serve_options(arguments, config, manifest)
    sock = bind(arguments.host, arguments.port)
    asyncio.run(serve_until_signalled(options, lambda: _load_engine(config), sock))
    _leave()


def open_folder(model_dir: Path, revision: str) -> Manifest | None:
    """The record of a model's folder, None without one; raises if it is no model's or another commit's."""
    from octavo_engine.fetching.manifest import check_folder
    from octavo_engine.gguf_file import find_gguf, model_folder

    if not (model_dir / "config.json").is_file() and find_gguf(model_dir) is None:
        raise InvalidSpec(
            f"--model {model_dir}: holds no config.json and no GGUF file; give the folder of a model, "
            "or the name of a .gguf file"
        )
    return check_folder(model_folder(model_dir), revision)


def engine_config(arguments: argparse.Namespace, manifest: Manifest | None) -> EngineConfig:
    """Flags as the engine takes them; name and commit are the record's where no flag says otherwise."""
    from octavo_engine.config import EngineConfig

    own_name = (
        manifest.origin if manifest is not None else arguments.model.absolute().name.removesuffix(".gguf")
    )
    own_revision = manifest.commit if manifest is not None else ""
    return EngineConfig(
        model_dir=arguments.model,
        served_model_name=arguments.served_model_name or own_name,
        revision=arguments.revision or own_revision,
        dtype=arguments.dtype,
        kv_cache_dtype=arguments.kv_cache_dtype,
        device=arguments.device,
        max_model_len=arguments.max_model_len,
        max_num_seqs=arguments.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        block_size=arguments.block_size,
        planned_kv_blocks=arguments.planned_kv_blocks,
        memory_limit_bytes=arguments.memory_limit,
        max_waiting=arguments.max_waiting,
        enable_prefix_caching=arguments.enable_prefix_caching,
        speculative_ngram=arguments.speculative_ngram,
        adapters=tuple(arguments.lora),
        max_adapters=_max_adapters(arguments),
        max_adapter_rank=arguments.max_lora_rank,
    )


def _max_adapters(arguments: argparse.Namespace) -> int:
    if arguments.max_loras is None:
        return len(arguments.lora) + (SPARE_ADAPTERS if arguments.allow_runtime_lora else 0)
    if arguments.max_loras < len(arguments.lora):
        raise InvalidSpec(
            f"--max-loras {arguments.max_loras}: fewer than the {len(arguments.lora)} of --lora; raise it"
        )
    return int(arguments.max_loras)


def _serve_options(
    arguments: argparse.Namespace, config: EngineConfig, manifest: Manifest | None
) -> ServeOptions:
    from octavo_engine.server.access import parse_keys
    from octavo_engine.server.lifecycle import DrainTimes
    from octavo_engine.server.process import ServeOptions

    return ServeOptions(
        model_dir=arguments.model,
        identity=identity_of(config, manifest),
        api_keys=parse_keys(arguments.api_key, os.environ.get(contract.API_KEY_VARIABLE)),
        log_requests=arguments.log_requests,
        max_open=config.max_num_seqs + config.max_waiting,
        allow_runtime_adapters=arguments.allow_runtime_lora,
        drain=DrainTimes(
            accept_seconds=arguments.drain_accept_seconds, shutdown_seconds=arguments.shutdown_timeout
        ),
    )


def identity_of(config: EngineConfig, manifest: Manifest | None) -> Identity:
    """Name and commit, and the files as the folder's record has them."""
    from octavo_engine.what_runs import Identity, ServedFile

    files = () if manifest is None else manifest.files
    return Identity(
        model_name=config.served_model_name,
        revision=config.revision,
        manifest_digest="" if manifest is None else manifest.digest,
        version=package_version(),
        repository="" if manifest is None else manifest.origin,
        files=tuple(ServedFile(path=file.path, size=file.size, digest=file.digest) for file in files),
    )


def package_version() -> str:
    """Of the installed distribution."""
    try:
        return version("octavo")
    except PackageNotFoundError:
        return "unknown"


def _load_engine(config: EngineConfig) -> Engine:
    from octavo_engine.llm_engine import LLMEngine

    return LLMEngine.load(config, progress=LoadingProgress(sys.stderr))


def _leave() -> None:
    """Exit without waiting for the engine thread: it may be in the middle of a long step."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)
