"""LoRA adapters over HTTP: asked for as models, listed, and loaded and unloaded where that is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from octavo.errors import InvalidSpec
from octavo_engine.cli.main import build_parser
from octavo_engine.cli.serve_command import engine_config
from tests.octavo_engine.lora import merged_oracle, save_adapter
from tests.octavo_engine.oracle import oracle_greedy
from tests.octavo_engine.server.conftest import StartServer
from tests.octavo_engine.server.running_server import HELLO, MODEL, RunningServer, eventually
from tests.octavo_engine.server.tiny_model import tiny_server, write_tiny_model

PROMPT = "Eine Katze und der Mond"
GREEDY = {"prompt": PROMPT, "max_tokens": 16, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def folders(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    return {name: save_adapter(root / name, model_dir, seed=seed) for seed, name in enumerate(("one", "two"))}


@pytest.fixture(scope="module")
def server(model_dir: Path, folders: dict[str, Path]) -> Iterator[RunningServer]:
    settings: dict[str, Any] = {"adapters": (("org/one", folders["one"]),), "max_adapters": 2}
    with tiny_server(model_dir, options={"allow_runtime_adapters": True}, **settings) as running:
        yield running
        assert running.metric("vllm:kv_cache_usage_perc") == 0


def load(server: RunningServer, name: str, folder: Path | str) -> httpx.Response:
    return server.http.post("/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(folder)})


def unload(server: RunningServer, name: str) -> httpx.Response:
    return server.http.post("/v1/unload_lora_adapter", json={"lora_name": name})


def text_of_merged(server: RunningServer, model_dir: Path, adapter: Path) -> str:
    ids = server.http.post("/tokenize", json={"prompt": PROMPT}).json()["tokens"]
    backend = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    expected = oracle_greedy(merged_oracle(model_dir, adapter), ids, 16)
    text: str = backend.decode(expected, skip_special_tokens=True)
    return text


def listed(server: RunningServer) -> list[str]:
    return [model.id for model in server.openai().models.list()]


def message(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    text: str = response.json()["error"]["message"]
    return text


def test_adapter_is_asked_for_as_a_model_whole_streamed_and_in_chat(
    server: RunningServer, model_dir: Path, folders: dict[str, Path]
) -> None:
    expected = text_of_merged(server, model_dir, folders["one"])
    whole = server.complete(**GREEDY, model="org/one").json()
    streamed = server.events(**GREEDY, model="org/one")[:-1]
    assert whole["choices"][0]["text"] == expected
    assert "".join(event["choices"][0]["text"] for event in streamed) == expected
    assert {body["model"] for body in (whole, *streamed)} == {"org/one"}
    assert server.complete(**GREEDY).json()["choices"][0]["text"] != expected
    chat = server.openai().chat.completions.create(model="org/one", messages=HELLO, max_tokens=4)
    assert chat.model == "org/one"


def test_adapters_are_listed_with_the_model_as_their_parent(server: RunningServer) -> None:
    cards = server.http.get("/v1/models").json()["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [(MODEL, None), ("org/one", MODEL)]
    assert server.http.get("/v1/models/org/one").json() == cards[1]
    assert server.http.get("/v1/models/org/two").status_code == 404
    assert server.http.post("/tokenize", json={"model": "org/one", "prompt": "a"}).status_code == 200


def test_adapter_is_loaded_served_and_unloaded_at_runtime(
    server: RunningServer, model_dir: Path, folders: dict[str, Path]
) -> None:
    message(server.complete(**GREEDY, model="two"), 404)
    assert load(server, "two", folders["two"]).text == "Success: LoRA adapter 'two' added successfully."
    assert listed(server) == [MODEL, "org/one", "two"]
    bodies = [{**GREEDY, "model": name} for name in (MODEL, "org/one", "two")] * 3
    with ThreadPoolExecutor(len(bodies)) as pool:
        texts = [
            answer.json()["choices"][0]["text"]
            for answer in pool.map(lambda body: server.complete(**body), bodies)
        ]
    assert texts[:3] * 3 == texts
    assert texts[2] == text_of_merged(server, model_dir, folders["two"])
    assert "--max-loras" in message(load(server, "three", folders["two"]), 400)
    assert unload(server, "two").status_code == 200
    assert listed(server) == [MODEL, "org/one"]
    message(server.complete(**GREEDY, model="two"), 404)
    message(unload(server, "two"), 404)


def test_unloading_lets_a_stream_finish(server: RunningServer, folders: dict[str, Path]) -> None:
    load(server, "two", folders["two"])
    body = {"model": "two", "prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body) as response:
        lines = (line for line in response.iter_lines() if line)
        next(lines)
        assert server.metric("vllm:lora_requests_info", running_lora_adapters="two", max_lora="2") > 0
        assert unload(server, "two").status_code == 200
        assert '"length"' in [*lines][-2]
    eventually(lambda: load(server, "two", folders["two"]).status_code == 200)
    assert unload(server, "two").status_code == 200


def test_folder_that_cannot_be_served_is_400_and_nothing_else_suffers(
    server: RunningServer, tmp_path: Path, model_dir: Path, folders: dict[str, Path]
) -> None:
    dora = save_adapter(tmp_path / "dora", model_dir, use_dora=True)
    (tmp_path / "odd" / "adapter_config.json").mkdir(parents=True)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "adapter_config.json").write_text("[" * 100_000)
    assert "use_dora" in message(load(server, "x", dora), 400)
    broken = [tmp_path / name for name in ("gone", "odd", "deep")]
    for path in (*broken, "a\0b", "x" * 4000, "/proc/self/mem"):
        assert "'x'" in message(load(server, "x", path), 400)
    assert "loaded already" in message(load(server, "org/one", folders["one"]), 400)
    for name in (MODEL, "", "a b", "a,b", "ü", "x" * 129):
        assert "lora_name" in message(load(server, name, folders["one"]), 400)
    assert listed(server) == [MODEL, "org/one"]
    assert server.complete(**GREEDY).status_code == 200


def test_routes_are_absent_unless_allowed(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    assert load(server, "x", tmp_path).status_code == 404
    assert unload(server, "x").status_code == 404
    assert not [path for path in server.http.get("/openapi.json").json()["paths"] if "lora" in path]


def test_engine_that_dies_of_a_load_is_told_to_who_asked(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(options={"allow_runtime_adapters": True}, fail_at_load=True)
    assert "engine has failed" in message(load(server, "x", tmp_path), 503)
    assert "engine has failed" in message(load(server, "x", tmp_path), 503)


@pytest.mark.parametrize(
    ("flags", "max_adapters"),
    [
        ([], 0),
        (["--lora", "a=/x", "--lora", "b=/y=z"], 2),
        (["--lora", "a=/x", "--allow-runtime-lora"], 5),
        (["--lora", "a=/x", "--max-loras", "3"], 3),
    ],
)
def test_flags_say_how_many_adapters_get_room(flags: list[str], max_adapters: int) -> None:
    arguments = build_parser().parse_args(["serve", "--model", "/m", *flags])
    config = engine_config(arguments, None)
    assert config.max_adapters == max_adapters
    assert [str(folder) for _, folder in config.adapters] == ["/x", "/y=z"][: len(config.adapters)]


def test_fewer_places_than_adapters_are_refused() -> None:
    arguments = build_parser().parse_args(["serve", "--model", "/m", "--lora", "a=/x", "--max-loras", "0"])
    with pytest.raises(InvalidSpec, match="--max-loras 0"):
        engine_config(arguments, None)


@pytest.mark.parametrize("text", ["a", "=x", "a="])
def test_adapter_without_name_or_folder_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["serve", "--model", "/m", "--lora", text])
    assert "NAME=DIR" in capsys.readouterr().err
