"""The command `octavo-engine`: serve a model from a folder, fetch a model into one."""

from octavo_engine.cli.main import main

__all__ = ["main"]
