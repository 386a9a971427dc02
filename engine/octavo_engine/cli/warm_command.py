"""`octavo-engine warm`: everything that serving needs, up to the first token, and then an end.

It proves that a model can be served with these flags on this machine, and leaves its files behind.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Final

from octavo import engine_contract as contract
from octavo.errors import OctavoError
from octavo_engine.cli.loading_progress import LoadingProgress
from octavo_engine.cli.serve_command import (
    add_memory_flags,
    add_model_flags,
    engine_config,
    identity_of,
    open_folder,
)
from octavo_engine.cli.source_flags import URI_FORMS, add_fetch_flags, fetch_from_flags

if TYPE_CHECKING:
    from octavo_engine.llm_engine import LLMEngine

NAME: Final = "warm"
SUMMARY: Final = "Fetch a model if its URI is given, load it, generate one token, and exit."


class WarmingFailed(OctavoError):
    """The engine was loaded and made no token."""

    reason = "WarmingFailed"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Those of `serve` that concern the engine, and where to fetch from."""
    add_model_flags(parser)
    parser.add_argument(
        contract.FLAG_FETCH_URI,
        metavar="URI",
        help=f"fetch it at --revision into --model first: {URI_FORMS} (HF_ENDPOINT, HF_TOKEN)",
    )
    add_fetch_flags(parser)
    add_memory_flags(parser)


def run(arguments: argparse.Namespace) -> None:
    """Warm, and print what it came to as JSON."""
    started = time.monotonic()
    if arguments.uri is not None:
        fetch_from_flags(arguments, arguments.model)
    manifest = open_folder(arguments.model, arguments.revision)
    from octavo_engine.llm_engine import LLMEngine
    from octavo_engine.what_runs import what_runs

    config = engine_config(arguments, manifest)
    engine = LLMEngine.load(config, progress=LoadingProgress(sys.stderr))
    token_id = first_token(engine)
    record = what_runs(identity_of(config, manifest), engine.facts)
    print(json.dumps({**record, "token_id": token_id, "seconds": round(time.monotonic() - started, 2)}))


def first_token(engine: LLMEngine) -> int:
    """Through scheduler, cache, model and sampler, as a request would; raises WarmingFailed."""
    from octavo_engine.requests import EngineRequest, SamplingParams

    request = EngineRequest(
        request_id="warm",
        prompt_token_ids=(0,),
        params=SamplingParams(max_tokens=1, temperature=0.0),
        arrival=0.0,
    )
    refusal = engine.add_request(request)
    if refusal is not None:
        raise WarmingFailed(refusal.message)
    events = engine.step(0.0)
    if not events or not events[0].token_ids:
        raise WarmingFailed(events[0].error or "no token came" if events else "no token came")
    return events[0].token_ids[0]
