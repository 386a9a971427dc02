"""Typed reads of a `config.json`; a field that cannot be used is refused by its name."""

from __future__ import annotations

from collections.abc import Mapping

from octavo_engine.errors import UnsupportedModel


class ConfigFields:
    """Typed reads of a configuration; null counts as absent, as in the models' own code."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = config

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        value = self.optional_integer(name, least=least)
        value = default if value is None else value
        if value is None:
            raise UnsupportedModel(f"{name}: missing from config.json")
        return value

    def optional_integer(self, name: str, *, least: int = 1) -> int | None:
        value = self.config.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UnsupportedModel(f"{name}: must be an integer from {least} up, got {value!r}")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.optional_number(name)
        return default if value is None else value

    def optional_number(self, name: str) -> float | None:
        value = self.config.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float):
            raise UnsupportedModel(f"{name}: must be a number, got {value!r}")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.config.get(name)
        return default if value is None else bool(value)

    def sequence(self, name: str) -> list[object] | None:
        value = self.config.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise UnsupportedModel(f"{name}: must be a list, got {value!r}")
        return value
