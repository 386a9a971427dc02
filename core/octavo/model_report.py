"""What a resolver pod found out about a model, in the 4096 bytes that the kubelet keeps of it.

The pod's termination message is all that comes back from it: commit, manifest digest, size, and the
configuration from which memory is planned. It is a JSON object that a person can read, but for the
configuration: that is JSON whose lists are written as runs (`full, full, full` as `3, full`: many files
repeat themselves once per layer), deflated, in base 85. A file that still is too long loses what
`parse_architecture` does not look at, and nothing else, so that it reads the same.

The reader trusts nothing: a message may be cut, be another program's, or try to fill its memory.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeVar

from octavo.architecture import ModelArchitecture, parse_architecture
from octavo.errors import InvalidConfig, InvalidSpec, Unsupported

MAX_REPORT_BYTES: Final = 4096
"""The kubelet keeps no more of a termination message."""
MAX_CONFIG_BYTES: Final = 1 << 20
"""Of the inflated text: the largest published files, with lists of quantized modules, have 100 kB."""
MAX_CONFIG_VALUES: Final = 1 << 17
"""Of the configuration with its runs written out."""
MAX_SIZE_BYTES: Final = 1 << 60
FORMAT: Final = 1
"""Counts up when an older reader could misread a newer report; it then gets None and says so."""

COMMIT: Final = re.compile(r"[0-9a-f]{40}|sha256:[0-9a-f]{64}")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

Config = Mapping[str, object]
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    """A model at one commit; of a folder or an image the commit is its manifest's digest."""

    commit: str
    manifest_digest: str
    size_bytes: int
    """Of the files that the engine needs."""
    config: Config

    def __post_init__(self) -> None:
        if not COMMIT.fullmatch(self.commit):
            raise InvalidSpec(f"commit: must be 40 hex digits or sha256:…, got {self.commit!r:.80}")
        if not DIGEST.fullmatch(self.manifest_digest):
            raise InvalidSpec(f"manifest_digest: must be sha256:…, got {self.manifest_digest!r:.80}")
        if not 0 <= self.size_bytes <= MAX_SIZE_BYTES:
            raise InvalidSpec(f"size_bytes: must be within 0 and 2^60, got {self.size_bytes!r:.80}")


def encode_model_report(report: ModelReport) -> str:
    """The termination message; raises InvalidConfig where even the needed part of the file is too long."""
    try:
        text = _message(report, report.config)
        if len(text) > MAX_REPORT_BYTES:
            text = _message(report, needed_config(report.config))
    except RecursionError:
        raise InvalidConfig("config.json: is nested too deeply to be a model's") from None
    if len(text) > MAX_REPORT_BYTES:
        raise InvalidConfig(
            f"config.json: what memory depends on takes {len(text)} bytes packed; a resolver's report holds "
            f"{MAX_REPORT_BYTES}"
        )
    return text


def _message(report: ModelReport, config: Config) -> str:
    """Base 85 has no character that JSON would escape."""
    fields = {
        "format": FORMAT,
        "commit": report.commit,
        "manifest_digest": report.manifest_digest,
        "size_bytes": report.size_bytes,
        "config": pack_config(config),
    }
    return json.dumps(fields, separators=(",", ":"))


def decode_model_report(text: str) -> ModelReport | None:
    """The report, or None for anything that is not a whole one: cut, damaged, foreign, or too large."""
    if len(text) > MAX_REPORT_BYTES:
        return None
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            return None
        return ModelReport(
            commit=_checked(fields["commit"], str),
            manifest_digest=_checked(fields["manifest_digest"], str),
            size_bytes=_checked(fields["size_bytes"], int),
            config=unpack_config(_checked(fields["config"], str)),
        )
    except (ValueError, KeyError, TypeError, zlib.error, RecursionError, InvalidSpec):
        return None


def _checked(value: object, kind: type[Kind]) -> Kind:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{value!r:.60} is no {kind.__name__}")
    return value


# Packing -----------------------------------------------------------------------------------------
def pack_config(config: Config) -> str:
    """A configuration as text whose length does not grow with repetition.

    >>> unpack_config(pack_config({"layer_types": ["full"] * 60})) == {"layer_types": ["full"] * 60}
    True
    """
    compact = json.dumps(with_runs(config), separators=(",", ":")).encode()
    return base64.b85encode(zlib.compress(compact, level=9)).decode()


def unpack_config(text: str) -> dict[str, Any]:
    """The configuration back; raises ValueError, TypeError, zlib.error or RecursionError for other text."""
    inflater = zlib.decompressobj()
    content = inflater.decompress(base64.b85decode(text), MAX_CONFIG_BYTES)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("the packed configuration is cut, has a tail, or is too large")
    value = json.loads(content)
    if num_values(value) > MAX_CONFIG_VALUES:
        raise ValueError(f"the configuration has more than {MAX_CONFIG_VALUES} values")
    return dict(_checked(without_runs(value), dict))


def with_runs(value: object) -> object:
    """Every list as count, value, count, value.

    >>> with_runs(["full", "full", "sliding"])
    [2, 'full', 1, 'sliding']
    """
    if isinstance(value, Mapping):
        return {name: with_runs(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [part for run in _runs([with_runs(item) for item in value]) for part in run]
    return value


def _runs(items: Sequence[object]) -> Iterator[tuple[int, object]]:
    """Compared as text, because Python takes 1, 1.0 and true for equal, and a reader of types does not."""
    for _, run in groupby(items, key=json.dumps):
        same = list(run)
        yield len(same), same[0]


def without_runs(value: object) -> object:
    """Every list as it was; the items of one run are one object, which nobody may change."""
    if isinstance(value, dict):
        return {name: without_runs(item) for name, item in value.items()}
    if isinstance(value, list):
        return [item for count, run in _pairs(value) for item in [without_runs(run)] * count]
    return value


def num_values(value: object) -> int:
    """Values in a configuration with its runs written out, without writing them out.

    >>> num_values([3, "full"]), num_values({"a": [1000, [1000, 0]]})
    (4, 1001002)
    """
    if isinstance(value, dict):
        return 1 + sum(num_values(item) for item in value.values())
    if isinstance(value, list):
        return 1 + sum(count * num_values(run) for count, run in _pairs(value))
    return 1


def _pairs(parts: Sequence[object]) -> list[tuple[int, object]]:
    counts = [_checked(count, int) for count in parts[::2]]
    if any(count < 1 for count in counts):
        raise ValueError("a run of a list has no items")
    return list(zip(counts, parts[1::2], strict=True))


# Leaving out -------------------------------------------------------------------------------------
def needed_config(config: Config) -> dict[str, object]:
    """The configuration without the fields, at its top, that make no difference to what it is read as."""
    wanted = _reading(config)

    def reads_the_same(fewer: dict[str, object]) -> bool:
        return _reading(fewer) == wanted

    return _without_needless(dict(config), sorted(config), reads_the_same)


def _reading(config: Config) -> ModelArchitecture | Unsupported | str:
    try:
        return parse_architecture(config)
    except InvalidConfig as error:
        return str(error)


def _without_needless(
    config: dict[str, object], names: Sequence[str], reads_the_same: Callable[[dict[str, object]], bool]
) -> dict[str, object]:
    """Leave out all of the names, or else look at each half of them."""
    fewer = {name: value for name, value in config.items() if name not in set(names)}
    if reads_the_same(fewer):
        return fewer
    if len(names) <= 1:
        return config
    middle = len(names) // 2
    config = _without_needless(config, names[:middle], reads_the_same)
    return _without_needless(config, names[middle:], reads_the_same)
