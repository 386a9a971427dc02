"""A server with a scripted engine, made as each test wants it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.octavo_engine.server.running_server import (
    RunningServer,
    running_server,
    serve_options,
    write_text_files,
)
from tests.octavo_engine.server.scripted_engine import ScriptedEngine, scripted_facts
from tests.octavo_engine.text.small_tokenizers import byte_level_tokenizer, piece_ids

EOS = 2

StartServer = Callable[..., RunningServer]


@contextlib.contextmanager
def scripted_server(
    folder: Path,
    pieces: Sequence[bytes] = (b"x", b"y", b"z"),
    *,
    ends: bool = True,
    backend: Any = None,
    ids: Sequence[int] | None = None,
    facts: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    text_files: dict[str, Any] | None = None,
    **engine: Any,
) -> Iterator[RunningServer]:
    """A server whose engine says `pieces` or `ids`, then ends; `engine` goes to the ScriptedEngine."""
    tokenizer = backend or byte_level_tokenizer([piece for piece in pieces if len(piece) > 1])
    script = [*(ids if ids is not None else piece_ids(tokenizer, pieces)), *([EOS] if ends else [])]
    engine_facts = scripted_facts(**{"vocab_size": tokenizer.get_vocab_size(), **(facts or {})})
    scripted = ScriptedEngine(lambda request: script, facts=engine_facts, **engine)
    write_text_files(folder, tokenizer, **(text_files or {}))
    with running_server(serve_options(folder, **(options or {})), lambda: scripted) as server:
        server.engine = scripted
        yield server


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start a server of one's own; arguments as of `scripted_server`."""
    with contextlib.ExitStack() as stack:

        def start(*pieces: Sequence[bytes], **arguments: Any) -> RunningServer:
            return stack.enter_context(scripted_server(tmp_path, *pieces, **arguments))

        yield start
