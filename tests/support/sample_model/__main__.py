"""`python -m tests.support.sample_model`: make the sample model if need be and print its folder."""

from __future__ import annotations

import argparse

from tests.support.sample_model import sample_model_dir

if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tests.support.sample_model", description=__doc__).parse_args()
    print(sample_model_dir())
