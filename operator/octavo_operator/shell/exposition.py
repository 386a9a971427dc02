"""The text that a metrics page is made of, read only as far as some names go.

A page has hundreds of lines and a service hundreds of pods: the general parser takes 5 ms for a page, this
one a tenth of that. Lines of other names are not looked at; one of a wanted name that is no sample raises.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, text format 0.0.4.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

Samples = dict[str, list[tuple[str, float]]]
"""By name, the text between the braces and the value of each sample."""


def read_samples(text: str, wanted: Collection[str]) -> Samples:
    """
    >>> read_samples('# HELP up Up.\\nup 1\\nkv{state="total",pod="{a}"} 8 1700\\nother 3', {"up", "kv"})
    {'up': [('', 1.0)], 'kv': [('state="total",pod="{a}"', 8.0)]}
    """
    found: Samples = {}
    for line in text.split("\n"):
        brace = line.find("{")
        name = line[:brace] if brace > 0 else line.partition(" ")[0]
        if name not in wanted:
            continue
        close = line.rfind("}") if brace > 0 else len(name) - 1
        values = line[close + 1 :].split()
        if close < brace or not 1 <= len(values) <= 2:
            raise ValueError(f"no sample: {line[:100]!r}")
        labels = line[brace + 1 : close] if brace > 0 else ""
        found.setdefault(name, []).append((labels, float(values[0])))
    return found


def label_of(labels: str, name: str) -> str:
    """The label's value, or empty.

    >>> label_of('model_name="a\\\\"b",le="0.5"', "le")
    '0.5'
    """
    return next((value for key, value in LABEL.findall(labels) if key == name), "")
