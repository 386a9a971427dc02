"""API keys: who is let in, what stays open, and that keys are not told."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest
from starlette.datastructures import Headers

from octavo.errors import InvalidSpec
from octavo_engine.server.access import Access, parse_keys
from tests.octavo_engine.server.conftest import StartServer
from tests.octavo_engine.server.running_server import MODEL

KEYS = ("first-key", "second-key")


def is_let_in(access: Access, authorization: str | None) -> bool:
    sent = {} if authorization is None else {"authorization": authorization}
    return access.refusal(Headers(sent)) is None


@pytest.mark.parametrize(
    ("authorization", "let_in"),
    [
        pytest.param("Bearer first-key", True, id="first"),
        pytest.param("Bearer second-key", True, id="second"),
        pytest.param("bearer  second-key ", True, id="scheme in any case, spaces around"),
        pytest.param(None, False, id="nothing sent"),
        pytest.param("", False, id="empty"),
        pytest.param("Bearer", False, id="scheme alone"),
        pytest.param("Bearer ", False, id="empty key"),
        pytest.param("first-key", False, id="no scheme"),
        pytest.param("Basic first-key", False, id="other scheme"),
        pytest.param("Bearer first-ke", False, id="beginning of a key"),
        pytest.param("Bearer first-key,second-key", False, id="both at once"),
        pytest.param("Bearer f\xefrst-key", False, id="not ASCII"),
    ],
)
def test_one_of_the_keys_lets_in(authorization: str | None, let_in: bool) -> None:
    assert is_let_in(Access(KEYS), authorization) == let_in


def test_without_keys_everybody_is_let_in() -> None:
    assert is_let_in(Access(), None)
    assert is_let_in(Access(), "Bearer whatever")


def test_keys_of_flags_and_environment_add_up() -> None:
    assert parse_keys(["a"], "b, c") == ("a", "b", "c")
    assert parse_keys([], None) == ()


@pytest.mark.parametrize(
    ("given", "environment"),
    [([""], None), (["a b"], None), ([], "a,,b"), (["kéy"], None), ([], ""), ([], "\n")],
)
def test_key_that_no_header_can_carry_is_refused_without_repeating_it(
    given: list[str], environment: str | None
) -> None:
    with pytest.raises(InvalidSpec, match="--api-key, OCTAVO_API_KEY") as refused:
        parse_keys(given, environment)
    assert not any(len(key) > 1 and key in str(refused.value) for key in given)


def test_every_route_but_probes_asks_for_the_key(start_server: StartServer) -> None:
    server = start_server(options={"api_keys": KEYS})
    document = start_paths(server.http.get("/openapi.json", headers=bearer(KEYS[0])).json())
    open_paths = {"/health", "/ready", "/metrics", "/version"}
    assert open_paths < set(document)
    for path, method in document.items():
        response = server.http.request(method, path)
        assert (response.status_code == 401) == (path not in open_paths), path
    refused = server.complete()
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.headers["x-request-id"]
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert server.engine.requests == []


def start_paths(document: dict[str, dict[str, dict[str, object]]]) -> dict[str, str]:
    return {path: next(iter(operations)).upper() for path, operations in document["paths"].items()}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_openai_client_is_let_in_with_the_key_and_told_without(start_server: StartServer) -> None:
    server = start_server(options={"api_keys": KEYS})
    client = server.openai()
    with pytest.raises(openai.AuthenticationError, match="API key"):
        client.models.list()
    known = client.with_options(api_key=KEYS[1])
    assert known.models.list().data[0].id == MODEL
    assert known.completions.create(model=MODEL, prompt="a").choices[0].text == "xyz"


def test_keys_are_in_no_log(
    start_server: StartServer, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level("INFO"):
        server = start_server(options={"api_keys": KEYS})
        server.http.get("/v1/models", headers=bearer("a-wrong-key"))
        server.http.get("/v1/models", headers=bearer(KEYS[0]))
    logged = " ".join(str(vars(record)) for record in caplog.records)
    assert "an API key is asked for" in logged
    assert not any(key in logged for key in (*KEYS, "a-wrong-key"))
