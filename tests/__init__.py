"""Tests of Octavo; `tests.support`, `tests.cluster` and `tests.demo` are also run as programs."""
