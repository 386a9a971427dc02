"""The served OpenAPI document: valid, true, and nothing that fits it or nearly fits it breaks the server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.octavo_engine.server.conftest import scripted_server
from tests.octavo_engine.server.running_server import HELLO, MODEL, RunningServer, parse_event
from tests.octavo_engine.server.test_tools import TEMPLATE

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
BOUNDED = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
MALFORMED = [
    b"",
    b"{",
    b"\xff\xfe",
    b"null",
    b"[" * 10_000,
    b'{"model": "m", "prompt": ' + b"9" * 5000 + b"}",
    b'{"model": "m", "prompt": "a", "temperature": NaN}',
    b'{"model": "m", "prompt": "a", "structured_outputs": {"regex": "("}}',
    b'{"model": "m", "prompt": "\\ud800"}',
    b'{"model": "m", "prompt": [99999999999999999999]}',
    b'{"model": "m", "messages": [{"role": "user", "content": {}}], "tools": [{}], "response_format": 5}',
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("model")
    options = {"allow_runtime_adapters": True}
    with scripted_server(folder, text_files={"template": TEMPLATE}, options=options) as running:
        running.http.post("/v1/load_lora_adapter", json={"lora_name": "adapted", "lora_path": str(folder)})
        yield running


@pytest.fixture(scope="module")
def api_schema(server: RunningServer) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


TEXT_ROUTES = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")
POSTS = (
    *TEXT_ROUTES,
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
)
GETS = ("/v1/models", "/v1/models/{name}", "/health", "/ready", "/metrics", "/version")


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [
        *(pytest.param(path, "GET", GenerationMode.POSITIVE, id=path) for path in GETS),
        *(pytest.param(path, "POST", GenerationMode.POSITIVE, id=f"{path} fits") for path in POSTS),
        *(pytest.param(path, "POST", GenerationMode.NEGATIVE, id=f"{path} nearly fits") for path in POSTS),
    ],
)
def test_no_request_breaks_the_server_or_the_document(
    api_schema: Any, path: str, method: str, mode: GenerationMode
) -> None:
    statuses: Counter[int] = Counter()

    @BOUNDED
    @given(case=api_schema[path][method].as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        statuses[case.call_and_validate(checks=CHECKS, timeout=10).status_code] += 1

    send()
    if path in TEXT_ROUTES:
        answered = statuses[200] >= 4
        assert answered == (mode is GenerationMode.POSITIVE), f"says little of the server: {statuses}"


def test_document_names_every_route_body_and_the_model(server: RunningServer) -> None:
    document = server.http.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/models",
        "/v1/models/{name}",
        "/tokenize",
        "/detokenize",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/health",
        "/ready",
        "/metrics",
        "/version",
    }
    schemas = document["components"]["schemas"]
    assert schemas["ChatBody"]["properties"]["model"]["enum"] == [MODEL, "adapted"]
    assert "schema" in schemas["JsonSchema"]["properties"]
    refs = {part.split('"')[0] for part in json.dumps(document).split('"$ref": "')[1:]}
    assert refs <= {f"#/components/schemas/{name}" for name in schemas}


def test_malformed_bodies_do_not_stop_a_stream(tmp_path: Any) -> None:
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 300, "stream": True}
    with (
        scripted_server(tmp_path, ends=False, step_seconds=0.002) as server,
        ThreadPoolExecutor(4) as pool,
        server.http.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        lines = response.iter_lines()
        first = next(line for line in lines if line)
        sent = [
            pool.submit(server.http.post, path, content=content)
            for path in TEXT_ROUTES
            for content in MALFORMED
        ]
        events = [parse_event(line) for line in (first, *lines) if line]
        assert {answer.result().status_code for answer in sent} == {400}
        assert events[-1] == "[DONE]"
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
        assert len(text) == 300
