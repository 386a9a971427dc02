"""`octavo simulate`: what the planner would do for a service's traffic, before it is turned on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from octavo.errors import InvalidSpec
from octavo_operator.api.spec import Autoscaling, InferenceServiceSpec
from octavo_operator.api.spec.scaling import ServiceLevelObjective
from octavo_operator.cli.exit_statuses import OK
from octavo_operator.cli.program import report_errors
from octavo_operator.cli.render_command import ServiceRefused, ask_hub, read_config, read_world
from octavo_operator.cli.service_file import add_file_option
from octavo_operator.cli.simulate_load import read_load
from octavo_operator.cli.simulate_plot import check_plot, write_plot
from octavo_operator.cli.simulate_report import as_json, as_text
from octavo_operator.decide.scaling.prior import find_prior
from octavo_operator.decide.sizing import build_workload, plan_memory, summarize_plan
from octavo_operator.decide.target import Refusal
from octavo_operator.simulation.comparison import compare
from octavo_operator.simulation.engine_law import SimulatedEngine
from octavo_operator.simulation.outcome import Objective
from octavo_operator.simulation.planned_engine import engine_of_plan
from octavo_operator.simulation.run import Setting
from octavo_operator.simulation.workloads import SHAPES

DESCRIPTION: Final = """\
What the planner of mode SLO would do for a service under a load, simulated step by step, beside KEDA on
requests in flight, an HPA on the KV cache and a fixed number. Steps cost what the operator assumes before
it has seen one, with noise and stalls on top; a real service may be faster or slower.
Exit status: 0 simulated, 2 bad input, 4 no answer of the hub."""
SLO_FIELDS: Final = {
    "ttft": "ttft_milliseconds",
    "tpot": "tpot_milliseconds",
    "objective": "objective_percent",
}
FEWEST, MOST = 1, 64


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="octavo simulate", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_file_option(parser, "--service")
    load = parser.add_mutually_exclusive_group(required=True)
    load.add_argument(
        "--trace", metavar="FILE", type=Path, help="CSV: TIMESTAMP, ContextTokens, GeneratedTokens"
    )
    load.add_argument("--shape", choices=tuple(SHAPES), help="a named load")
    parser.add_argument(
        "--rps",
        type=float,
        metavar="R",
        help="mean requests per second of --shape; default: so many that half of maxReplicas would be needed",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of --shape and of the noise (0)")
    parser.add_argument(
        "--slo", metavar="ttft=MS,tpot=MS,objective=PERCENT", help="default: the service's, else 2000, 80, 95"
    )
    parser.add_argument(
        "--cold-start", type=float, default=180.0, metavar="SECONDS", help="from a pod to Ready (180)"
    )
    parser.add_argument(
        "--model-config", metavar="FILE", type=Path, help="the model's config.json; default: the hub is asked"
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=Path,
        help="draw load and ready replicas over time, and attainment against replica-hours (.png or .svg)",
    )
    return parser


@report_errors("simulate")
def main(argv: Sequence[str]) -> int:
    options = build_parser().parse_args(argv)
    if options.plot is not None:
        check_plot(options.plot)
    options.namespace = None
    world = read_world(options)
    policy = read_policy(world.spec, options.slo)
    setting = setting_of(policy, read_engine(world.spec, options), world.spec, options)
    load = read_load(options, setting, policy)
    comparison = compare(load.workload, setting, policy, on_progress=show_progress())
    if options.output == "json":
        print(json.dumps(as_json(comparison, load), indent=2, ensure_ascii=False))
    else:
        print(as_text(comparison, load, setting))
    if options.plot is not None:
        write_plot(comparison, load, setting, options.plot)
    return OK


# Reading ------------------------------------------------------------------------------------------------


def read_policy(spec: InferenceServiceSpec, slo: str | None) -> Autoscaling:
    """The service's own, or the default with as many replicas as anybody simulates."""
    policy = spec.autoscaling or Autoscaling(min_replicas=FEWEST, max_replicas=MOST)
    if slo is None:
        return policy
    return policy.model_copy(update={"slo": parse_slo(slo, policy.slo)})


def parse_slo(text: str, known: ServiceLevelObjective) -> ServiceLevelObjective:
    """`ttft=2000,tpot=80,objective=95`; what is not named stays as it is."""
    values = known.model_dump()
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name.strip() not in SLO_FIELDS or not value.strip().isdecimal():
            raise InvalidSpec(
                f"--slo: {part!r} must be one of ttft=MS, tpot=MS, objective=PERCENT, in whole numbers"
            )
        values[SLO_FIELDS[name.strip()]] = int(value)
    try:
        return ServiceLevelObjective.model_validate(values)
    except ValidationError as error:
        raise InvalidSpec(f"--slo: {_first_of(error)}") from None


def _first_of(error: ValidationError) -> str:
    first, words = error.errors()[0], {field: word for word, field in SLO_FIELDS.items()}
    return f"{words[str(first['loc'][0])]}: {first['msg']}, got {first['input']}"


def read_engine(spec: InferenceServiceSpec, options: argparse.Namespace) -> SimulatedEngine:
    """The replica that the operator would plan; an accelerator's too, though no engine runs there yet."""
    file = options.model_config
    config = ask_hub(spec.model).config if file is None else read_config(file)
    plan = plan_memory(spec, config)
    if isinstance(plan, Refusal):
        raise ServiceRefused(f"{plan.reason}: {plan.message}")
    prior = find_prior(summarize_plan(plan), ())
    step_tokens = build_workload(spec).max_num_batched_tokens
    return engine_of_plan(plan, prior, name=f"{spec.model.uri} on {plan.device}", step_tokens=step_tokens)


def setting_of(
    policy: Autoscaling, engine: SimulatedEngine, spec: InferenceServiceSpec, options: argparse.Namespace
) -> Setting:
    if not 1 <= options.cold_start <= 3600:
        raise InvalidSpec(f"--cold-start: must be from 1 to 3600 seconds, got {options.cold_start}")
    if options.seed < 0:
        raise InvalidSpec(f"--seed: must be from 0 up, got {options.seed}")
    return Setting(
        engine=engine,
        objective=Objective(
            ttft_seconds=policy.slo.ttft_milliseconds / 1000,
            tpot_seconds=policy.slo.tpot_milliseconds / 1000,
            percent=policy.slo.objective_percent,
        ),
        cold_start_seconds=options.cold_start,
        drain_seconds=spec.rollout.drain_seconds,
        initial_replicas=policy.min_replicas,
        min_replicas=policy.min_replicas,
        max_replicas=policy.max_replicas,
        seed=options.seed,
    )


# Showing ------------------------------------------------------------------------------------------------


def show_progress() -> Callable[[str, float], None]:
    """A line on a terminal; nothing where nobody watches."""

    def show(name: str, share: float) -> None:
        end = "\n" if share >= 1 else ""
        print(f"\r{name}: {100 * share:3.0f} %\033[K", end=end, file=sys.stderr, flush=True)

    return show if sys.stderr.isatty() else lambda _name, _share: None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
