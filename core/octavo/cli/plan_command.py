"""`octavo plan`: the memory of a model, explained before anything is started."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from octavo.accelerators import ACCELERATORS, Accelerator, find_accelerator
from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.cli.exit_codes import BAD_INPUT, DOES_NOT_FIT, OK, UNAVAILABLE, UNSUPPORTED
from octavo.cli.model_config import HubUnavailable, ReadConfig, read_directory, read_file, read_hub
from octavo.cli.plan_json import plan_json, unsupported_json
from octavo.cli.plan_table import plan_table, unsupported_text
from octavo.errors import InvalidSpec, OctavoError, Unsupported
from octavo.planning import (
    Alternative,
    Infeasible,
    MemoryPlan,
    Workload,
    alternatives,
    plan_accelerator,
    plan_cpu,
)

BATCHED_TOKENS_CPU: Final = 512
BATCHED_TOKENS_ACCELERATOR: Final = 8192
DEFAULT_LENGTHS: Final = (4096, 32768)
DEFAULT_PERCENT: Final = 90
DEFAULT_FOR_SEQUENCES: Final = 4
DEFAULT_REVISION: Final = "main"
FLAG_OF_FIELD: Final = {"kv_dtype": "--kv-cache-dtype"}
"""Flags that are called otherwise than the field they set."""
_SUFFIXES: Final = {
    "": 1,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}
_DESCRIPTION: Final = """\
Where each byte of a device goes when a model is served: weights, one step, runtime, KV cache.
Without --accelerator the plan is that of a pod on a CPU, whose memory is derived or given.
Exit status: 0 it fits, 1 it does not, 2 bad input, 3 unsupported architecture, 4 no answer from the hub."""


def main(argv: Sequence[str]) -> int:
    """Answer one question; the exit status says how it went."""
    options = build_parser().parse_args(argv)
    try:
        return answer(options)
    except HubUnavailable as error:
        print(f"octavo plan: {error}", file=sys.stderr)
        return UNAVAILABLE
    except InvalidSpec as error:
        print(f"octavo plan: {in_flags(str(error), options)}", file=sys.stderr)
        return BAD_INPUT
    except OctavoError as error:
        print(f"octavo plan: {error}", file=sys.stderr)
        return BAD_INPUT


def in_flags(message: str, options: argparse.Namespace) -> str:
    """A refusal that names a field, in the words of the command line: `--block-size: ...`."""
    field, colon, rest = message.partition(":")
    name = field.partition("[")[0]
    if name in FLAG_OF_FIELD or name.replace("-", "_") in vars(options):
        field = FLAG_OF_FIELD.get(name, "--" + name.replace("_", "-"))
    return f"{field}{colon}{rest}"


def refuse_idle_flags(options: argparse.Namespace) -> None:
    """A flag that would do nothing is a mistake: whoever gave it means another plan than the one made."""
    if options.accelerator is None:
        idle = {"devices": options.devices, "memory-percent": options.memory_percent}
        way_out = "is of accelerators; add --accelerator, or leave it out for a CPU pod"
    else:
        idle = {"memory": options.memory, "for-sequences": options.for_sequences}
        way_out = "is of a CPU pod; leave it out, or leave out --accelerator"
    if options.model is None:
        idle["revision"] = options.revision
    for flag, value in idle.items():
        if value is not None:
            reason = "is of --model; a file has no revisions" if flag == "revision" else way_out
            raise InvalidSpec(f"{flag}: {value} {reason}")


def answer(options: argparse.Namespace) -> int:
    refuse_idle_flags(options)
    workload = workload_of(options)
    accelerator = find_accelerator(options.accelerator) if options.accelerator else None
    config = read_model(options)
    arch = parse_architecture(config.values)
    as_json = options.output == "json"
    if isinstance(arch, Unsupported):
        print(json.dumps(unsupported_json(arch, config), indent=2) if as_json else unsupported_text(arch))
        return UNSUPPORTED
    plan = make_plan(arch, workload, accelerator, options)
    others = other_plans(arch, workload, plan, accelerator, options)
    if as_json:
        parallel = plan.tensor_parallel if isinstance(plan, MemoryPlan) else 1
        document = plan_json(
            arch, workload, plan, config, tensor_parallel=options.tensor_parallel or parallel, others=others
        )
        print(json.dumps(document, indent=2))
    else:
        print(plan_table(arch, workload, plan, config, others))
    return OK if isinstance(plan, MemoryPlan) else DOES_NOT_FIT


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo plan", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_argument_group("model (one of these)").add_mutually_exclusive_group(required=True)
    source.add_argument("--model", metavar="URI", help="hf://organization/name (HF_ENDPOINT, HF_TOKEN)")
    source.add_argument("--config", metavar="FILE", type=Path, help="a config.json")
    source.add_argument("directory", metavar="DIR", nargs="?", type=Path, help="a folder that holds one")
    parser.add_argument("--revision", metavar="R", help="branch, tag or commit of --model (main)")
    _add_device_options(parser.add_argument_group("device"))
    _add_workload_options(parser.add_argument_group("workload"))
    parser.add_argument("--output", choices=("table", "json"), default="table")
    return parser


def _add_device_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--accelerator", metavar="NAME", help=f"one of {', '.join(ACCELERATORS)} (default: a CPU pod)"
    )
    group.add_argument("--devices", type=count, metavar="N", help="default: the fewest that fit")
    group.add_argument("--tensor-parallel", type=count, metavar="N", help="default: from the devices")
    group.add_argument("--memory-percent", type=count, metavar="P", help="of an accelerator (90)")
    group.add_argument("--memory", metavar="SIZE", help="of the CPU pod, as 4Gi (default: derived)")
    group.add_argument(
        "--for-sequences",
        type=count,
        metavar="N",
        help="that a CPU pod's derived memory holds (4)",
    )


def _add_workload_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dtype", default="auto", metavar="D", help="auto, bfloat16, float16, float32")
    group.add_argument(
        "--kv-cache-dtype", default="auto", metavar="D", help="auto, bf16, fp16, float32, fp8, int8"
    )
    group.add_argument("--block-size", type=count, default=16, metavar="TOKENS")
    group.add_argument("--max-model-len", type=count, metavar="TOKENS", help="default: what fits")
    group.add_argument("--max-num-seqs", type=count, metavar="N", help="default: from the plan")
    group.add_argument("--max-num-batched-tokens", type=count, metavar="TOKENS", help="of one step")
    group.add_argument("--lengths", metavar="N,N", help="sequence lengths to size (4096,32768)")


def count(text: str) -> int:
    """A whole number of at least one, for argparse."""
    if not text.isascii() or not text.isdigit() or int(text[:20]) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text[:20])


def workload_of(options: argparse.Namespace) -> Workload:
    default = BATCHED_TOKENS_ACCELERATOR if options.accelerator else BATCHED_TOKENS_CPU
    return Workload(
        max_model_len=options.max_model_len,
        max_num_batched_tokens=options.max_num_batched_tokens or default,
        max_num_seqs=options.max_num_seqs,
        for_sequences=options.for_sequences or DEFAULT_FOR_SEQUENCES,
        kv_dtype=options.kv_cache_dtype,
        dtype=options.dtype,
        block_size=options.block_size,
        lengths=parse_lengths(options.lengths),
    )


def parse_lengths(text: str | None) -> tuple[int, ...]:
    """`4096,32768` as numbers."""
    if text is None:
        return DEFAULT_LENGTHS
    try:
        return tuple(count(part.strip()) for part in text.split(","))
    except argparse.ArgumentTypeError as error:
        raise InvalidSpec(f"lengths: {error}") from error


def read_model(options: argparse.Namespace) -> ReadConfig:
    if options.model is not None:
        return read_hub(options.model, options.revision or DEFAULT_REVISION)
    return read_file(options.config) if options.config is not None else read_directory(options.directory)


def make_plan(
    arch: ModelArchitecture,
    workload: Workload,
    accelerator: Accelerator | None,
    options: argparse.Namespace,
) -> MemoryPlan | Infeasible:
    if accelerator is None:
        limit = None if options.memory is None else parse_size(options.memory)
        return _whole_on_one_pod(plan_cpu(arch, workload, memory_limit_bytes=limit), options.tensor_parallel)
    return plan_accelerator(
        arch,
        workload,
        accelerator=accelerator,
        devices=options.devices,
        memory_percent=options.memory_percent or DEFAULT_PERCENT,
        tensor_parallel=options.tensor_parallel,
    )


def _whole_on_one_pod(plan: MemoryPlan | Infeasible, parallel: int | None) -> MemoryPlan | Infeasible:
    if isinstance(plan, Infeasible) or parallel in (None, 1):
        return plan
    note = (
        f"--tensor-parallel {parallel} sizes each of {parallel} devices; the plan is of one CPU pod, uncut."
    )
    return replace(plan, notes=(*plan.notes, note))


def other_plans(
    arch: ModelArchitecture,
    workload: Workload,
    plan: MemoryPlan | Infeasible,
    accelerator: Accelerator | None,
    options: argparse.Namespace,
) -> tuple[Alternative, ...]:
    if accelerator is None or isinstance(plan, Infeasible):
        return ()
    return alternatives(
        arch, workload, plan, accelerator=accelerator, percent=options.memory_percent or DEFAULT_PERCENT
    )


def parse_size(text: str) -> int:
    """A Kubernetes quantity of bytes.

    >>> parse_size("1.5Gi")
    1610612736
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)(Ki|Mi|Gi|Ti|k|M|G|T)?", text)
    if match is None:
        raise InvalidSpec(f"memory: {text!r} is no size; write it as 4Gi or 512Mi")
    return int(float(match[1]) * _SUFFIXES[match[2] or ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
