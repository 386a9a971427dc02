"""`octavo plan`: the memory of a model, explained before anything is started."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from octavo.accelerators import find_accelerator
from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.cli.exit_codes import DOES_NOT_FIT, OK, UNSUPPORTED
from octavo.cli.plan_report import plan_json, plan_table, unsupported_json, unsupported_text
from octavo.errors import InvalidConfig, InvalidSpec, Unsupported
from octavo.planning import Infeasible, MemoryPlan, Workload, plan_accelerator, plan_cpu

_SUFFIX_BYTES: Final = {
    "": 1,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
}


def main(argv: Sequence[str]) -> int:
    options = build_parser().parse_args(argv)
    workload = workload_of(options)
    arch = parse_architecture(read_config(options))
    if isinstance(arch, Unsupported):
        print(json.dumps(unsupported_json(arch)) if options.output == "json" else unsupported_text(arch))
        return UNSUPPORTED
    plan = make_plan(arch, workload, options)
    print(
        json.dumps(plan_json(arch, workload, plan), indent=2)
        if options.output == "json"
        else plan_table(arch, plan)
    )
    return OK if isinstance(plan, MemoryPlan) else DOES_NOT_FIT


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="octavo plan", description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", metavar="FILE", type=Path, help="a config.json")
    source.add_argument("directory", metavar="DIR", nargs="?", type=Path, help="a folder that holds one")
    parser.add_argument("--accelerator", metavar="NAME", help="default: a CPU pod")
    parser.add_argument("--devices", type=int, metavar="N", help="default: the fewest that fit")
    parser.add_argument("--memory", metavar="SIZE", help="the pod's memory (4Gi); default: derived")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--block-size", type=int, default=16, metavar="TOKENS")
    parser.add_argument("--max-model-len", type=int, metavar="TOKENS")
    parser.add_argument("--max-num-batched-tokens", type=int, metavar="TOKENS")
    parser.add_argument("--memory-percent", type=int, default=90, metavar="PERCENT")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    return parser


def workload_of(options: argparse.Namespace) -> Workload:
    batched = options.max_num_batched_tokens or (8192 if options.accelerator else 512)
    return Workload(
        max_model_len=options.max_model_len,
        max_num_batched_tokens=batched,
        kv_dtype=options.kv_cache_dtype,
        dtype=options.dtype,
        block_size=options.block_size,
    )


def make_plan(
    arch: ModelArchitecture, workload: Workload, options: argparse.Namespace
) -> MemoryPlan | Infeasible:
    if options.accelerator is None:
        limit = None if options.memory is None else parse_size(options.memory)
        return plan_cpu(arch, workload, memory_limit_bytes=limit)
    return plan_accelerator(
        arch,
        workload,
        accelerator=find_accelerator(options.accelerator),
        devices=options.devices,
        memory_percent=options.memory_percent,
    )


def read_config(options: argparse.Namespace) -> Mapping[str, object]:
    path = options.config or options.directory / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidSpec(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not JSON that can be read: {error}") from error
    if not isinstance(config, dict):
        raise InvalidConfig(f"{path}: must hold a JSON object")
    return config


def parse_size(text: str) -> int:
    """A Kubernetes quantity of bytes.

    >>> parse_size("1.5Gi")
    1610612736
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|k|M|G)?", text)
    if match is None:
        raise InvalidSpec(f"memory: {text!r} is no size; write it as 4Gi or 512Mi")
    return int(float(match[1]) * _SUFFIX_BYTES[match[2] or ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
