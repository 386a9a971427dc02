"""The serving process: socket, engine thread and HTTP server put together, from start to exit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn

from octavo.errors import OctavoError
from octavo.units import format_bytes
from octavo_engine.engine_facts import EngineFacts
from octavo_engine.gguf_file import model_folder
from octavo_engine.server.access import Access
from octavo_engine.server.app import build_app
from octavo_engine.server.engine_port import Engine
from octavo_engine.server.engine_thread import STALL_SECONDS, EngineThread, Report, Stop
from octavo_engine.server.lifecycle import DrainTimes, Lifecycle
from octavo_engine.server.metrics import EngineCollector, metrics_page
from octavo_engine.server.request_log import LogLevel, RequestLog
from octavo_engine.server.request_timing import RequestTimings
from octavo_engine.server.serving import Serving
from octavo_engine.server.submissions import EngineClient
from octavo_engine.text.chat_template import ChatTemplate, load_chat_template
from octavo_engine.text.generation_defaults import GenerationDefaults, load_generation_defaults
from octavo_engine.text.grammar import GrammarCompiler
from octavo_engine.text.tokenizer import TextTokenizer, load_tokenizer
from octavo_engine.what_runs import Identity, what_runs

logger = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS: Final = 75
"""Longer than load balancers keep idle connections (60 s), so that they never meet a closed one."""
CONNECTION_CLOSE_SECONDS: Final = 3
ENGINE_STOP_SECONDS: Final = 5.0


class AddressInUse(OctavoError):
    """The address to serve on cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What the server part needs to know; the engine's own options go into `load`."""

    model_dir: Path
    identity: Identity
    max_open: int
    """Sequences that may run or wait."""
    drain: DrainTimes
    allow_runtime_adapters: bool = False
    api_keys: tuple[str, ...] = ()
    """One of them is asked for; none: anybody may ask."""
    log_requests: LogLevel = "summary"
    stall_seconds: float = STALL_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFiles:
    """What a model's folder says about text."""

    tokenizer: TextTokenizer
    template: ChatTemplate | None
    defaults: GenerationDefaults


def read_text_files(model_dir: Path) -> TextFiles:
    """Read them; raises InvalidConfig."""
    template = load_chat_template(model_dir)
    if template is None:
        logger.warning("the model has no chat template: /v1/chat/completions will answer 400")
    return TextFiles(
        tokenizer=load_tokenizer(model_dir),
        template=template,
        defaults=load_generation_defaults(model_folder(model_dir)),
    )


def bind(host: str, port: int) -> socket.socket:
    """The listening address, taken before the model is loaded: a conflict is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise AddressInUse(f"--host {host} --port {port}: cannot listen there: {error.strerror}") from error
    return sock


class _HttpServer(uvicorn.Server):
    """uvicorn without its own signal handlers, which close the listener at once."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Interruption:
    """The wish that the process ends, as something to wait for; each further one calls `again`."""

    def __init__(self) -> None:
        self._came = asyncio.Event()
        self.by: signal.Signals | None = None
        self.again: Callable[[], None] = lambda: None

    def listen(self) -> None:
        """Be what SIGTERM and Ctrl-C do; only from the main thread."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.interrupt, number)

    def interrupt(self, number: signal.Signals) -> None:
        """A signal came."""
        if self._came.is_set():
            self.again()
        self.by = self.by or number
        self._came.set()

    async def wait(self) -> None:
        """Until the first one."""
        await self._came.wait()


async def serve_until_signalled(
    options: ServeOptions, load: Callable[[], Engine], sock: socket.socket
) -> None:
    """`serve` for a process of its own."""
    interruption = Interruption()
    interruption.listen()
    await serve(options, load, sock, interruption)


async def serve(
    options: ServeOptions, load: Callable[[], Engine], sock: socket.socket, interruption: Interruption
) -> None:
    """Load, serve until interrupted, drain. Returns when all is over; raises what loading raised."""
    loop = asyncio.get_running_loop()
    timings = RequestTimings(time.monotonic)

    def hand_over(reports: Sequence[Report]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for these
            loop.call_soon_threadsafe(client.receive, reports)

    thread = EngineThread(load, hand_over, options.stall_seconds)
    client = EngineClient(thread.send, max_open=options.max_open, timings=timings)
    loading = asyncio.gather(
        asyncio.wrap_future(thread.start()), asyncio.to_thread(read_text_files, options.model_dir)
    )
    if not await _done_before_interruption(loading, interruption):
        logger.info("interrupted while loading")
        return
    facts, text_files = loading.result()
    serving = build_serving(options, thread, client, timings, facts, text_files)
    _log_start(options, facts, sock)
    if facts.max_adapters:
        _log_adapters(serving)
    await _serve_http(options, serving, sock, interruption)
    thread.send(Stop())
    await asyncio.to_thread(thread.join, ENGINE_STOP_SECONDS)


async def _done_before_interruption(
    loading: asyncio.Future[tuple[EngineFacts, TextFiles]], interruption: Interruption
) -> bool:
    interrupted: asyncio.Future[None] = asyncio.ensure_future(interruption.wait())
    waiting: set[asyncio.Future[Any]] = {loading, interrupted}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    interrupted.cancel()
    return loading.done()


def build_serving(
    options: ServeOptions,
    thread: EngineThread,
    client: EngineClient,
    timings: RequestTimings,
    facts: EngineFacts,
    text_files: TextFiles,
) -> Serving:
    """Everything the routes need."""
    lifecycle = Lifecycle()
    collector = EngineCollector(
        identity=options.identity,
        facts=facts,
        timings=timings,
        stats=lambda: thread.stats,
        is_draining=lambda: lifecycle.is_draining,
    )
    return Serving(
        identity=options.identity,
        facts=facts,
        client=client,
        tokenizer=text_files.tokenizer,
        template=text_files.template,
        defaults=text_files.defaults,
        grammars=GrammarCompiler(
            text_files.tokenizer, vocab_size=facts.vocab_size, eos_token_ids=facts.eos_token_ids
        ),
        lifecycle=lifecycle,
        access=Access(options.api_keys),
        request_log=RequestLog(options.log_requests, text_files.tokenizer.decode),
        unhealthy_because=thread.unhealthy_because,
        metrics_page=lambda: metrics_page(collector),
        adapters=lambda: thread.adapters,
        allows_runtime_adapters=options.allow_runtime_adapters,
        started=time.time(),
    )


async def _serve_http(
    options: ServeOptions, serving: Serving, sock: socket.socket, interruption: Interruption
) -> None:
    config = uvicorn.Config(
        build_app(serving),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=CONNECTION_CLOSE_SECONDS,
    )
    server = _HttpServer(config)
    running = asyncio.create_task(server.serve(sockets=[sock]))
    await interruption.wait()
    interruption.again = serving.lifecycle.hurry
    await serving.lifecycle.drain(_drain_times(options, interruption), serving.client.end_all)
    server.should_exit = True
    await running
    logger.info("stopped")


def _drain_times(options: ServeOptions, interruption: Interruption) -> DrainTimes:
    """Nobody's endpoint list points at a server that is ended by Ctrl-C."""
    if interruption.by is signal.SIGINT:
        return DrainTimes(accept_seconds=0, shutdown_seconds=options.drain.shutdown_seconds)
    return options.drain


def _log_adapters(serving: Serving) -> None:
    logger.info(
        "LoRA adapters: %s; at most %d, for which %s are kept; %s",
        ", ".join(adapter.name for adapter in serving.adapters()) or "none yet",
        serving.facts.max_adapters,
        format_bytes(serving.facts.adapter_bytes),
        "clients may load and unload them" if serving.allows_runtime_adapters else "fixed until the end",
    )


def _log_start(options: ServeOptions, facts: EngineFacts, sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    identity, tokens = options.identity, facts.num_kv_blocks * facts.block_size
    logger.info(
        "serving %s at http://%s:%d, %s: %s with %d threads, %s, KV %s; %d blocks of %d tokens (%d tokens, "
        "%.1f sequences of full length %d), bounded by %s; at most %d sequences and %d tokens in a step; "
        "revision %s, %s",
        identity.model_name,
        host,
        port,
        "an API key is asked for" if options.api_keys else "to anybody",
        facts.device,
        facts.num_threads,
        facts.dtype,
        facts.kv_dtype,
        facts.num_kv_blocks,
        facts.block_size,
        tokens,
        tokens / facts.max_model_len,
        facts.max_model_len,
        facts.kv_blocks_bound,
        facts.max_num_seqs,
        facts.max_num_batched_tokens,
        identity.revision or "unknown",
        f"{len(identity.files)} files verified" if identity.files else "files not verified",
        extra={"runs": what_runs(identity, facts)},
    )
    for kernels in facts.kernels:
        logger.info(
            "kernels: %s in %d layers by %s%s",
            kernels.kind,
            kernels.num_layers,
            kernels.path,
            f" ({kernels.reason})" if kernels.reason else "",
        )
