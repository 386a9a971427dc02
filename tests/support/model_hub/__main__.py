"""`python -m tests.support.model_hub seed|serve`: fill a store, or serve one until interrupted."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from pathlib import Path

from tests.support.model_hub import HubStore, ModelHub, seed_store


def main() -> int:
    options = _parse()
    store = HubStore(options.store)
    if options.command == "seed":
        seeded = seed_store(store)
        print(f"v1={seeded.first}\nmain={seeded.second}")
        return 0
    return _serve(store, options.host, options.port)


def _serve(store: HubStore, host: str, port: int) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end alike on SIGTERM and Ctrl-C
    hub = ModelHub(store, host=host, port=port)
    print(f"model hub: {store.root} at {hub.endpoint}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        hub.serve_forever()
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.model_hub", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, meaning in (("seed", "fill the store"), ("serve", "serve the store until interrupted")):
        command = commands.add_parser(name, help=meaning)
        command.add_argument("--store", type=Path, required=True, help="the store's folder")
        if name == "serve":
            command.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
            command.add_argument("--port", type=int, default=0, help="port to listen on (any free one)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
