"""Real models and engine logs against our sizes: the rows of the documentation's table and the tests.

`python -m tests.octavo.kv_cases` writes `docs/reference/kv-cases.md`; a test checks that it is current.
The cases hold configurations with right answers (A), engine logs with their pools (B), and real
weight sizes (C).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.errors import Unsupported
from octavo.kv_sizing import (
    attention_layers,
    block_bytes,
    cross_bytes_per_sequence,
    kv_bytes_per_token,
    kv_layout,
    sequence_bytes,
    state_bytes_per_sequence,
)
from octavo.units import GIB
from octavo.weights import params_total, weights_bytes

DATA = Path(__file__).parent / "data"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "kv-cases.md"

EXACT = 0.0
LOG_TOLERANCE = 0.006
UNQUANTIZED_TOLERANCE = 0.003
QUANTIZED_TOLERANCE = 0.03
KV_NAMES = {"bf16": "bf16", "fp16": "fp16", "16-bit": "bf16", "fp8": "fp8"}

EXPLAINED = {
    "B08": "the engine rounds its estimate down to a multiple of 512 tokens",
    "C15": "the repository holds the weights twice; half of the files is what is loaded",
    "C39": "vLLM pads the vocabulary and the positions: 2.4 % of so small a model",
}
"""Where a deviation beyond the tolerance is known and right."""
NOT_COMPARED = {
    "A95": "no closed form is known: answered as unsupported, with the reason",
    "B24": "the log names no model",
    "B56": "the architecture is answered as unsupported",
    "C19": "the case gives no configuration",
    "C25": "the case gives no configuration",
}
"""Cases of which nothing of ours can be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one case."""

    case: str
    model: str
    what: str
    real: float
    ours: float
    tolerance: float

    @property
    def deviation(self) -> float:
        return self.ours / self.real - 1 if self.real else float(self.ours != 0)

    @property
    def agrees(self) -> bool:
        return abs(self.deviation) <= self.tolerance


def load_cases() -> list[dict[str, Any]]:
    return json.loads((DATA / "kv_cases.json").read_text())


CASES = {case["id"]: case for case in load_cases()}
_EXTRA = json.loads((DATA / "case_configs.json").read_text())


def config_of(case: Mapping[str, Any]) -> dict[str, Any] | None:
    """The case's own configuration, another case's, or the published one; with its quantization."""
    config = case["config"]
    if "config_case" in config:
        other = config["config_case"]
        config = CASES[other]["config"] if other else _EXTRA["configs"].get(case["id"])
    quantization = _EXTRA["quantizations"].get(case["id"])
    if config is None or quantization is None:
        return config
    return {**config, "quantization_config": quantization}


def architecture_of(case: Mapping[str, Any]) -> ModelArchitecture | Unsupported | None:
    config = config_of(case)
    return None if config is None else parse_architecture(config)


def rows_of(case: Mapping[str, Any]) -> list[Row]:
    """Every figure of a case that we compute too."""
    arch = architecture_of(case)
    if not isinstance(arch, ModelArchitecture) or case["id"] in NOT_COMPARED:
        return []
    figures = {"A": _model_figures, "B": _log_figures, "C": _weight_figures}[case["section"]]
    return [
        Row(case=case["id"], model=case["model"], what=what, real=real, ours=ours, tolerance=tolerance)
        for what, real, ours, tolerance in figures(arch, case["expected"])
        if real is not None
    ]


Figure = tuple[str, float | None, float, float]


def _model_figures(arch: ModelArchitecture, expected: Mapping[str, Any]) -> Iterator[Figure]:
    for dtype in ("bf16", "fp8"):
        real = expected[f"kv_bytes_per_token_{dtype}"]
        yield f"bytes per token, {dtype}", real, kv_bytes_per_token(arch, kv_dtype=dtype), EXACT
    yield "attention layers", expected["attention_layers_with_kv"], attention_layers(arch), EXACT
    for tp, real in expected.get("per_gpu_bytes_per_token_bf16", {}).items():
        ours = kv_bytes_per_token(arch, kv_dtype="bf16", tensor_parallel=int(tp.removeprefix("tp")))
        yield f"bytes per token, {tp}", real, ours, EXACT
    for length, real in expected["seq_bytes_bf16"].items():
        sizes = sequence_bytes(arch, int(length), kv_dtype="bf16")
        yield f"sequence of {length}, no window", real["no_window_engine"], sizes.full, EXACT
        yield f"sequence of {length}, window", real["window_engine_ideal"], sizes.windowed_ideal, EXACT
    yield from _window_figures(arch, expected)
    if "state_bytes_per_seq" in expected:
        yield (
            "state",
            expected["state_bytes_per_seq"],
            state_bytes_per_sequence(arch, dtype="bfloat16"),
            EXACT,
        )
    if "cross_attention_bytes_per_seq_bf16" in expected:
        ours = cross_bytes_per_sequence(arch, kv_dtype="bf16")
        yield "cross-attention", expected["cross_attention_bytes_per_seq_bf16"], ours, EXACT
    params = expected.get("params_total") or expected.get("params_text_only")
    yield "parameters", params, params_total(arch), UNQUANTIZED_TOLERANCE


def _window_figures(arch: ModelArchitecture, expected: Mapping[str, Any]) -> Iterator[Figure]:
    """What a token costs when every window is full, and what the windows then hold."""
    for dtype in ("bf16", "fp8"):
        each, held = _beyond_windows(arch, dtype)
        yield (
            f"bytes per token beyond windows, {dtype}",
            expected.get(f"kv_bytes_per_token_{dtype}_beyond_window"),
            each,
            EXACT,
        )
        if dtype == "bf16" and "windowed" in expected:
            real = sum(kind["max_bytes_per_seq_bf16"] for kind in expected["windowed"])
            yield "bytes that full windows hold", real, held, EXACT


def _beyond_windows(arch: ModelArchitecture, dtype: str) -> tuple[int, int]:
    beyond = 1 << 20
    ideal = [sequence_bytes(arch, n, kv_dtype=dtype).windowed_ideal for n in (beyond, beyond + 1)]
    each = ideal[1] - ideal[0]
    return each, ideal[0] - beyond * each


def _log_figures(arch: ModelArchitecture, expected: Mapping[str, Any]) -> Iterator[Figure]:
    kv_dtype = KV_NAMES.get(expected.get("kv_dtype", "bf16"), "bf16")
    tp = expected.get("tp") or (2 if expected.get("formula_note", "").endswith("TP2)") else 1)
    if "656" in expected.get("kv_dtype", ""):
        yield from _packed_latent(arch, expected)
        return
    per_token = kv_bytes_per_token(arch, kv_dtype=kv_dtype, tensor_parallel=tp)
    yield "bytes per token and GPU", expected["formula_bytes_per_token_per_gpu"], per_token, EXACT
    if "budget_gib" in expected:  # the other logs are of quantizations that their cases do not give
        yield "GiB of weights", expected["weights_gib"], weights_bytes(arch) / GIB, LOG_TOLERANCE
    block = block_bytes(arch, kv_dtype=kv_dtype, block_size=16, tensor_parallel=tp)
    if "cpu_blocks" in expected:
        yield "CPU blocks", expected["cpu_blocks"], expected["swap_gib"] * GIB // block, LOG_TOLERANCE
    if "need_gib" in expected and per_token:
        need = expected["max_model_len"] * per_token / GIB
        yield "GiB needed", expected["need_gib"], need, LOG_TOLERANCE
    if "est_max_len" in expected:
        fits = expected["kv_gib"] * GIB // per_token
        yield "longest context", expected["est_max_len"], fits, LOG_TOLERANCE
    pool = expected.get("kv_gib")
    is_uniform = len(kv_layout(arch, kv_dtype=kv_dtype, block_size=16).kinds) == 1
    if pool and is_uniform and expected.get("gpu_blocks"):
        yield "GPU blocks", expected["gpu_blocks"], pool * GIB // block, LOG_TOLERANCE
    elif pool and is_uniform and expected.get("kv_tokens"):
        yield "tokens", expected["kv_tokens"], pool * GIB // block * 16, LOG_TOLERANCE
    yield from _hybrid_figures(arch, expected, tp)


def _packed_latent(arch: ModelArchitecture, expected: Mapping[str, Any]) -> Iterator[Figure]:
    """FP8 in the layout of FlashMLA-sparse: 656 bytes in place of 576; the indexer's key comes on top."""
    packed = 656 - 576
    ours = kv_bytes_per_token(arch, kv_dtype="fp8") + packed * attention_layers(arch)
    real = expected["kv_gib_real"] * GIB / expected["kv_tokens"]
    yield "bytes per token with the indexer, packed FP8", real, ours, LOG_TOLERANCE


def _hybrid_figures(arch: ModelArchitecture, expected: Mapping[str, Any], tp: int) -> Iterator[Figure]:
    """The block size that a state forces, and the padding it leaves."""
    for dtype in ("bf16", "fp8"):
        if f"block_{dtype}" in expected:
            layout = kv_layout(arch, kv_dtype=dtype, block_size=16)
            yield f"tokens in a block, {dtype}", expected[f"block_{dtype}"], layout.block_size, EXACT
    if "padding_layers" in expected:
        layout = kv_layout(arch, kv_dtype="fp16", block_size=16)
        yield "padding layers", expected["padding_layers"], sum(k.padding_layers for k in layout.kinds), EXACT
        yield "tokens in a block", expected["attention_block"], layout.block_size, EXACT
    if "predicted_blocks" in expected["check"]:
        layout = kv_layout(arch, kv_dtype="fp8", block_size=16, tensor_parallel=tp)
        yield "tokens in a block, fp8", 1568, layout.block_size, EXACT
        blocks = expected["kv_gib"] * GIB // layout.block_bytes
        yield "blocks in the pool", expected["check"]["predicted_blocks"], blocks, EXACT


def _weight_figures(arch: ModelArchitecture, expected: Mapping[str, Any]) -> Iterator[Figure]:
    tp = 2 if "TP2" in expected["rule"] else 1
    tolerance = QUANTIZED_TOLERANCE if arch.quantization else UNQUANTIZED_TOLERANCE
    yield "bytes of weights", expected["real_bytes"], weights_bytes(arch, tensor_parallel=tp), tolerance
    if expected["params"] and not arch.quantization:
        yield "parameters", expected["params"], params_total(arch), EXACT


# The page -----------------------------------------------------------------------------------------

TITLE = """# Memory sizes against real models and engine logs

Generated by `python -m tests.octavo.kv_cases`; a test checks that it is current.

Each row is one figure: what a model or an engine's log really shows, and what `octavo plan` computes
from the configuration alone. Sizes of keys and values are exact; pools of engine logs agree within
0.6 %, since the logs print two decimals; weights within 0.3 %, quantized ones within 3 %.

A case marked ✎ came without a configuration or without its quantization: what it lacks was written down
by us from the case's own notes and from what is known of the model, and not copied from the model's
repository. Such a case checks the arithmetic, not the reading of a published file.
"""

SECTIONS = {
    "A": "Configurations with known answers",
    "B": "Engine logs with real pools",
    "C": "Real weight sizes",
}


def summary(section: str) -> str:
    ids = [case["id"] for case in CASES.values() if case["section"] == section]
    states = [verdict(case_id) for case_id in ids]
    agree, explained = states.count("agrees"), states.count("explained")
    return (
        f"{len(ids)} cases: {agree} agree, {explained} deviate for a reason that is given, "
        f"{states.count('not compared')} cannot be compared, {states.count('deviates')} deviate."
    )


def verdict(case_id: str) -> str:
    """agrees, explained, not compared or deviates."""
    rows = rows_of(CASES[case_id])
    if not rows:
        return "not compared"
    if all(row.agrees for row in rows):
        return "agrees"
    return "explained" if case_id in EXPLAINED else "deviates"


def render() -> str:
    parts = [TITLE]
    for section, title in SECTIONS.items():
        cases = [case for case in CASES.values() if case["section"] == section]
        lines = [
            f"## {title}\n\n{summary(section)}\n",
            "| case | model | figure | real | ours | deviation |",
            "|---|---|---|--:|--:|--:|",
            *(line for case in cases for line in _lines(case)),
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _lines(case: Mapping[str, Any]) -> Iterator[str]:
    rows = rows_of(case)
    is_written = case["id"] in _EXTRA["configs"] or case["id"] in _EXTRA["quantizations"]
    name = case["id"] + (" ✎" if is_written else "")
    if not rows:
        reason = NOT_COMPARED.get(case["id"], "nothing of it can be computed")
        yield f"| {name} | {case['model']} | {reason} | | | |"
    for row in rows:
        remark = "" if row.agrees else f" ({EXPLAINED.get(row.case, 'deviates')})"
        deviation = "0" if row.deviation == 0 else f"{100 * row.deviation:+.2f} %"
        yield (
            f"| {name} | {row.model} | {row.what} | {_number(row.real)} | {_number(row.ours)} | "
            f"{deviation}{remark} |"
        )


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tests.octavo.kv_cases", description=__doc__).parse_args()
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render())
    for section in SECTIONS:
        print(f"{section}: {summary(section)}")
