"""Kubernetes quantities that the resource takes: memory in bytes, CPU in thousandths of a core.

What is written to a pod is always the canonical form, so that a comparison with what the API server
stored never differs by spelling alone.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from octavo.errors import InvalidSpec

MEMORY_PATTERN: Final = r"^([0-9]+(\.[0-9]{1,3})?(Ki|Mi|Gi|Ti|k|M|G|T)?)?$"
CPU_PATTERN: Final = r"^([1-9][0-9]{0,6}m|[0-9]{1,4}(\.[0-9]{1,3})?)$"

MEMORY_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
MILLIS_PER_CORE: Final = 1000
MEBIBYTE: Final = 2**20


def parse_memory_bytes(text: str, *, field: str) -> int:
    """Bytes of a memory quantity.

    >>> parse_memory_bytes("1.5Gi", field="spec.resources.memory")
    1610612736
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]{1,3})?)([A-Za-z]{0,2})", text)
    if match is None or match[2] not in MEMORY_UNITS:
        raise InvalidSpec(f"{field}: must be a memory quantity such as 2Gi or 1500Mi, got {text!r}")
    return int(Decimal(match[1]) * MEMORY_UNITS[match[2]])


def parse_cpu_millis(text: str, *, field: str) -> int:
    """Thousandths of a core of a CPU quantity.

    >>> parse_cpu_millis("0.5", field="cpu"), parse_cpu_millis("400m", field="cpu")
    (500, 400)
    """
    if re.fullmatch(CPU_PATTERN, text) is None:
        raise InvalidSpec(f"{field}: must be a CPU quantity such as 2 or 500m, got {text!r}")
    millis = int(text[:-1]) if text.endswith("m") else int(Decimal(text) * MILLIS_PER_CORE)
    if millis <= 0:
        raise InvalidSpec(f"{field}: must be above zero, got {text!r}")
    return millis


def format_cpu(millis: int) -> str:
    """The API server's own spelling: whole cores without a unit.

    >>> format_cpu(2000), format_cpu(500)
    ('2', '500m')
    """
    whole, rest = divmod(millis, MILLIS_PER_CORE)
    return str(whole) if rest == 0 else f"{millis}m"


def format_memory(num_bytes: int) -> str:
    """The API server's own spelling of a number of bytes, rounded up to whole mebibytes.

    >>> format_memory(2**30), format_memory(2**30 + 1)
    ('1Gi', '1025Mi')
    """
    mebibytes = -(-num_bytes // MEBIBYTE)
    gibibytes, rest = divmod(mebibytes, 1024)
    return f"{gibibytes}Gi" if rest == 0 and gibibytes else f"{mebibytes}Mi"
