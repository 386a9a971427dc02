"""`python -m tests.cluster.images build`: build the images if need be and print their references."""

from __future__ import annotations

import argparse
import sys

from tests.cluster.images.build import build_images


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.images", description=__doc__)
    parser.add_argument("command", choices=["build"])
    parser.parse_args()
    try:
        images = build_images()
    except RuntimeError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    for name, reference in images.items():
        print(f"{name}={reference}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
