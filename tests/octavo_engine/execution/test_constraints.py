"""A constraint on a sequence's tokens: asked once per position, kept through preemption, alone or batched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from octavo_engine.requests import EngineRequest
from tests.octavo_engine.oracle import (
    TINY,
    generate,
    load_engine,
    request,
    run_until_idle,
    save_tiny_model,
    tokens_of,
)

VOCAB = TINY["vocab_size"]


@dataclass
class Rising:
    """Each token's id is above the one before by at most `stride`; counts what it is asked."""

    stride: int = 4
    first: int = 10
    asked: list[int] = field(default_factory=list)

    def allowed_after(self, output_token_ids: Sequence[int]) -> bytes | None:
        self.asked.append(len(output_token_ids))
        last = output_token_ids[-1] if output_token_ids else self.first
        mask = bytearray(VOCAB)
        mask[last + 1 : last + 1 + self.stride] = b"\1" * self.stride
        return bytes(mask)


class Impossible:
    """Gives up, or allows nothing, at its third token."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer

    def allowed_after(self, output_token_ids: Sequence[int]) -> bytes | None:
        return self.answer if len(output_token_ids) == 2 else b"\1" * VOCAB


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("llama"))


def bound(item: EngineRequest, constraint: object) -> EngineRequest:
    return replace(item, constraint=constraint)


def test_constraint_holds_and_neighbours_are_left_alone(model_dir: Path) -> None:
    engine = load_engine(model_dir)
    free = [request(f"free-{index}", [5, 6, 7 + index], 20) for index in range(3)]
    expected = generate(engine, free)
    rising = [Rising(), Rising()]
    mixed = [
        free[0],
        bound(request("greedy", [9, 8], 20), rising[0]),
        free[1],
        bound(request("drawn", [9, 8], 20, temperature=1.0, top_p=0.9, seed=3), rising[1]),
        free[2],
    ]
    outputs = generate(engine, mixed)
    assert [outputs[0], outputs[2], outputs[4]] == expected
    for output in (outputs[1], outputs[3]):
        assert all(0 < after - before <= 4 for before, after in zip([10, *output], output, strict=False))
    assert [constraint.asked for constraint in rising] == [list(range(20))] * 2


def test_preemption_at_every_step_changes_no_constrained_token(model_dir: Path) -> None:
    engine = load_engine(model_dir)
    item = request("bound", range(20, 60), 24, temperature=1.0, seed=1)
    (undisturbed,) = generate(engine, [bound(item, Rising())])
    constraint = Rising()
    assert engine.add_request(bound(item, constraint)) is None
    events = []
    while engine.has_work():
        events += engine.step(0.0)
        engine.preempt_newest()
    assert tokens_of(events) == undisturbed
    assert engine.stats().preemptions >= 20
    assert constraint.asked == list(range(24))


@pytest.mark.parametrize("answer", [None, bytes(VOCAB)], ids=["gives up", "allows nothing"])
def test_constraint_that_cannot_go_on_ends_its_sequence_only(model_dir: Path, answer: bytes | None) -> None:
    engine = load_engine(model_dir)
    items = [request("free", [5, 6], 6), bound(request("bound", [5, 6], 6), Impossible(answer))]
    events = run_until_idle(engine, items)
    assert len(tokens_of(events["free"])) == 6
    assert [event.finish_reason for event in events["bound"]] == [None, None, "error"]
    assert "grammar" in (events["bound"][-1].error or "")
    assert engine.stats().blocks_referenced == 0


def test_min_tokens_forbids_the_end_where_the_constraint_leaves_a_choice(model_dir: Path) -> None:
    class EndOr:
        def __init__(self, *others: int) -> None:
            self.ids = (2, *others)

        def allowed_after(self, output_token_ids: Sequence[int]) -> bytes | None:
            return bytes(token_id in self.ids for token_id in range(VOCAB))

    engine = load_engine(model_dir)
    long = bound(request("long", [5], 5, min_tokens=5, ignore_eos=False), EndOr(7))
    short = bound(request("short", [5], 3, min_tokens=2, ignore_eos=False), EndOr())
    assert generate(engine, [long, short]) == [[7] * 5, [2, 2]]
