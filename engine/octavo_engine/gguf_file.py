"""GGUF: a model in one file, its configuration, tokenizer and (mostly quantized) weights together.

The header is read here: it holds the whole vocabulary, which llama.cpp's own reader takes many seconds
for. Layout, all little-endian: magic, version, numbers of tensors and fields; fields (name, type,
value); tensors (name, sizes from the innermost, encoding, offset); then, aligned, the tensors' data.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final

from octavo_engine.errors import ModelFileError, UnsupportedModel

SUFFIX: Final = ".gguf"
MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
STRING: Final = 8
ARRAY: Final = 9
NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of values, as `struct` writes them."""
DEFAULT_ALIGNMENT: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFTensor:
    """Where one tensor lies in its file."""

    shape: tuple[int, ...]
    encoding: int
    """ggml's number of the type: 0 float32, 1 float16, others mostly quantized."""
    offset: int
    """In the file."""


class GGUFFile:
    """What a file says, and where it holds what."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                self.fields, self.tensors = _read_header(_Cursor(content))
        except (OSError, ValueError, struct.error) as error:
            raise ModelFileError(f"{path.name}: truncated or not a GGUF file: {error}") from error
        if self.integer("split.count", 1) > 1:
            raise UnsupportedModel(f"split.count: {path.name} is one file of several; merge them first")

    def integer(self, name: str, default: int) -> int:
        """A whole number, or the default where it is absent."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, int):
            raise UnsupportedModel(f"{name}: must be one integer in {self.path.name}, got {value!r:.60}")
        return default if value is None else value


def model_folder(model: Path) -> Path:
    """Where files beside the weights lie: `--model` names a folder, or a file in one."""
    return model if model.is_dir() else model.parent


def find_gguf(model: Path) -> Path | None:
    """The GGUF file that a `--model` means: itself, or the only one in a folder without safetensors."""
    if not model.is_dir():
        return model if model.suffix == SUFFIX else None
    if any(model.glob("*.safetensors*")):
        return None
    files = sorted(model.glob(f"*{SUFFIX}"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ModelFileError(f"{model}: holds several GGUF files; name one of {names}")
    return files[0] if files else None


class _Cursor:
    """Reads values one after another; what would lie beyond the end is a ValueError."""

    def __init__(self, content: mmap) -> None:
        self._content = content
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self._content):
            raise ValueError(f"ends at byte {len(self._content)}, in the middle of its header")
        data = self._content[self.position : end]
        self.position = end
        return data

    def numbers(self, letter: str, count: int) -> tuple[int | float | bool, ...]:
        return struct.unpack(f"<{count}{letter}", self.take(count * struct.calcsize(letter)))

    def integer(self, letter: str) -> int:
        return int(self.numbers(letter, 1)[0])

    def text(self) -> str:
        return self.take(self.integer("Q")).decode()

    def value(self, kind: int) -> object:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            element, count = self.integer("I"), self.integer("Q")
            if element in NUMBERS:
                return list(self.numbers(NUMBERS[element], count))
            return [self.value(element) for _ in range(count)]
        if kind not in NUMBERS:
            raise ValueError(f"a value of the unknown type {kind}")
        return self.numbers(NUMBERS[kind], 1)[0]


def _read_header(cursor: _Cursor) -> tuple[dict[str, object], dict[str, GGUFTensor]]:
    if cursor.take(len(MAGIC)) != MAGIC:
        raise ValueError("does not begin with GGUF")
    version = cursor.integer("I")
    if version not in VERSIONS:
        raise ValueError(f"version {version} is not one of {', '.join(map(str, VERSIONS))}")
    num_tensors, num_fields = cursor.integer("Q"), cursor.integer("Q")
    fields: dict[str, object] = {}
    for _ in range(num_fields):
        name = cursor.text()
        fields[name] = cursor.value(cursor.integer("I"))
    found = [_read_tensor(cursor) for _ in range(num_tensors)]
    alignment = fields.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment {alignment!r}")
    start = -(-cursor.position // alignment) * alignment
    return fields, {
        name: GGUFTensor(shape=shape, encoding=encoding, offset=start + offset)
        for name, shape, encoding, offset in found
    }


def _read_tensor(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name, num_sizes = cursor.text(), cursor.integer("I")
    sizes = tuple(int(size) for size in cursor.numbers("Q", num_sizes))
    return name, sizes[::-1], cursor.integer("I"), cursor.integer("Q")
