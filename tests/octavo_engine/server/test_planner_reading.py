"""The operator's planner can read what the engine writes: every number, from a server that has answered."""

from __future__ import annotations

from octavo import engine_contract as contract
from octavo_operator.decide.scaling import EngineReading
from octavo_operator.decide.scaling.progress import num_within, progress_between
from octavo_operator.shell.engine_page import parse_page


def test_planner_reads_the_engines_own_page(start_server) -> None:
    server = start_server()
    before = parse_page(server.http.get("/metrics").text, at=0.0)
    server.complete(prompt="xy", max_tokens=3)
    after = parse_page(server.http.get("/metrics").text, at=10.0)
    assert isinstance(before, EngineReading), before
    assert isinstance(after, EngineReading), after
    done = progress_between(before, after)
    assert done is not None
    assert (done.arrived, done.finished) == (1, 1)
    assert done.ttft.total == num_within(done.ttft, 40.0) == 1
    assert after.prompts.bounds == tuple(map(float, contract.UNCACHED_PROMPT_BOUNDS))
