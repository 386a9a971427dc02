"""The quality gate: fixed questions, asked at temperature 0, to the candidate and to what serves.

A probe with `expect`, a regular expression, is right when it is found in the answer. One without is
compared: the first tokens must be those of the last known good, recorded while it served. Expressions are
matched by an engine whose time is linear in the text, so that none can hold up the operator; it knows
neither look-around nor references back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import SchemaError

from octavo.errors import InvalidSpec
from octavo_operator.decide.rollout.values import Verdict

PROBES_KEY: Final = "probes.json"
MAX_PROBES: Final = 64
MAX_PROBE_TOKENS: Final = 256
COMPARED_TOKENS: Final = 32
"""Further on, rounding in another order of additions may choose another token."""
MAX_RECORDED_CHARACTERS: Final = 400
"""Of one recorded answer: an object's annotations take 256 KiB in all."""
SHOWN_CHARACTERS: Final = 60
REASON_FAILED: Final = "QualityGateFailed"
REASON_INCONCLUSIVE: Final = "GateInconclusive"
DIGEST_LENGTH: Final = 12


class Probe(BaseModel):
    """One question."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    prompt: str = Field(min_length=1, max_length=8192)
    max_tokens: int = Field(default=COMPARED_TOKENS, ge=1, le=MAX_PROBE_TOKENS, strict=True)
    expect: str | None = Field(default=None, min_length=1, max_length=1024)

    @property
    def asked_tokens(self) -> int:
        """Without `expect` only what is compared is asked for."""
        return self.max_tokens if self.expect is not None else min(self.max_tokens, COMPARED_TOKENS)


Probes = tuple[Probe, ...]
_READ_PROBES: Final = TypeAdapter(Annotated[Probes, Field(min_length=1, max_length=MAX_PROBES)])


def parse_probes(name: str, data: dict[str, Any]) -> Probes:
    """Raises InvalidSpec, naming the ConfigMap, the probe and the field."""
    text = data.get(PROBES_KEY)
    if not isinstance(text, str):
        raise InvalidSpec(f"ConfigMap {name}: must have the key {PROBES_KEY}, has {sorted(data) or 'none'}")
    try:
        probes = _READ_PROBES.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join((PROBES_KEY, *map(str, first["loc"])))
        words = first["msg"].replace("Tuple", "The list").replace(" after validation", "")
        raise InvalidSpec(f"ConfigMap {name}: {place}: {words}") from None
    for number, probe in enumerate(probes):
        if probe.expect is not None:
            _check_pattern(name, number, probe)
    return probes


def _check_pattern(name: str, number: int, probe: Probe) -> None:
    try:
        matches(probe, "")
    except SchemaError as error:
        place = f"{PROBES_KEY}.{number}.expect"
        words = str(error).rpartition("error: ")[2].strip()
        message = (
            f"ConfigMap {name}: {place}: {probe.expect!r:.200} is no regular expression of the linear kind"
        )
        raise InvalidSpec(" ".join(f"{message}: {words}".split())[:600]) from None


def matches(probe: Probe, answer: str) -> bool:
    """Whether `expect` is found in the answer."""
    assert probe.expect is not None, "a probe without expect is compared"
    # (?s): a dot stands for the end of a line too, as answers have several.
    pattern = TypeAdapter(Annotated[str, StringConstraints(pattern=f"(?s){probe.expect}")])
    try:
        pattern.validate_python(answer)
    except ValidationError:
        return False
    return True


def digest_probes(probes: Probes) -> str:
    """So that answers to other questions are not compared."""
    text = json.dumps([probe.model_dump(mode="json") for probe in probes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def needs_reference(probes: Probes) -> bool:
    return any(probe.expect is None for probe in probes)


def record_answers(probes: Probes, answers: Sequence[str]) -> str:
    """Of the last known good, as an annotation; only what will be compared."""
    kept = [
        answer[:MAX_RECORDED_CHARACTERS] if probe.expect is None else ""
        for probe, answer in zip(probes, answers, strict=True)
    ]
    return json.dumps({"probes": digest_probes(probes), "answers": kept}, ensure_ascii=False)


def recall_answers(probes: Probes, recorded: str) -> tuple[str, ...] | None:
    """None where there is no record of these very probes."""
    try:
        words = json.loads(recorded)
        answers = words["answers"]
        fits = words["probes"] == digest_probes(probes) and len(answers) == len(probes)
        return tuple(map(str, answers)) if fits else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One probe that was not as it should be."""

    prompt: str
    wanted: str
    got: str


def judge_quality(
    probes: Probes, answers: Sequence[str], reference: Sequence[str] | None, *, min_match_percent: int
) -> Verdict:
    """`reference`: the last known good's answers; None where there is none to compare with."""
    judged = [
        (probe, answer, reference[number] if reference is not None else None)
        for number, (probe, answer) in enumerate(zip(probes, answers, strict=True))
        if probe.expect is not None or reference is not None
    ]
    if not judged:
        message = f"{REASON_INCONCLUSIVE}: no earlier answers to compare {len(probes)} probes with"
        return Verdict(state="Passed", reason=REASON_INCONCLUSIVE, message=message)
    wrong = [found for found in (_judge(*one) for one in judged) if found is not None]
    matched = len(judged) - len(wrong)
    skipped = len(probes) - len(judged)
    beside = f", {skipped} had no earlier answer to compare with" if skipped else ""
    message = f"{matched} of {len(judged)} probes match{beside}"
    if 100 * matched >= min_match_percent * len(judged):
        return Verdict(state="Passed", reason="GatePassed", message=message)
    message = f"{message}, {min_match_percent} % must; {_show(wrong[0])}"
    return Verdict(state="Failed", reason=REASON_FAILED, message=message)


def _judge(probe: Probe, answer: str, earlier: str | None) -> Judged | None:
    if probe.expect is not None:
        wanted = None if matches(probe, answer) else f"expected {probe.expect!r}"
    else:
        cut = answer[:MAX_RECORDED_CHARACTERS]
        wanted = None if cut == earlier else f"the last known good answered {_short(earlier or '')!r}"
    return Judged(prompt=probe.prompt, wanted=wanted, got=answer) if wanted is not None else None


def _show(one: Judged) -> str:
    return f"to {_short(one.prompt)!r} {one.wanted}, got {_short(one.got)!r}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
