"""As much of PromQL as the samples use: what an expression selects, and by which labels it adds up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "manifests" / "autoscaling"
GROUPING = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
SELECTOR = re.compile(r"((?:vllm:|octavo_)[a-z_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'([a-z_]+)\s*(=~|=)\s*"([^"]*)"')
TARGET_LABELS = {"namespace": "default", "octavo_dev_service": "chat", "octavo_dev_revision": "r", "pod": "p"}
"""What a PodMonitor adds to each sample of an engine."""
Sample = tuple[str, dict[str, str]]
"""Name and labels."""


@dataclass(frozen=True)
class Selector:
    """One vector selector."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]

    def selects(self, name: str, labels: dict[str, str]) -> bool:
        return name == self.name and all(
            re.fullmatch(value if kind == "=~" else re.escape(value), labels.get(label, ""))
            for label, kind, value in self.matchers
        )


def selectors(expression: str) -> list[Selector]:
    """
    >>> selectors('sum by (namespace) (octavo_kv_tokens{state="total"})')
    [Selector(name='octavo_kv_tokens', matchers=(('state', '=', 'total'),))]
    """
    found = SELECTOR.findall(GROUPING.sub("", expression))
    return [Selector(name, tuple(MATCHER.findall(matchers))) for name, matchers in found]


def groupings(expression: str) -> list[frozenset[str]]:
    """
    >>> sorted(groupings("sum by (a, b) (octavo_x)")[0])
    ['a', 'b']
    """
    return [frozenset(part.strip() for part in one.split(",")) for one in GROUPING.findall(expression)]


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [one for path in sorted(FOLDER.glob("*.yaml")) for one in documents(path) if one["kind"] == kind]


def rules() -> Iterator[dict[str, Any]]:
    for one in of_kind("PrometheusRule"):
        for group in one["spec"]["groups"]:
            yield from group["rules"]


def expressions() -> list[str]:
    queries = [
        trigger["metadata"]["query"]
        for one in of_kind("ScaledObject")
        for trigger in one["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    ]
    return [rule["expr"] for rule in rules()] + queries


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def selecting_nothing(of: Iterable[Selector], samples: Iterable[Sample]) -> list[Selector]:
    known = list(samples)
    return [one for one in of if not any(one.selects(name, labels) for name, labels in known)]
