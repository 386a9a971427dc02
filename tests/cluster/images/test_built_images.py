"""The built images hold what their pods need, run without root, and know nothing of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.images import build_images
from tests.cluster.images.base import base_image
from tests.cluster.images.build import CERTIFICATES
from tests.cluster.images.buildah import buildah

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@contextmanager
def container(image: str) -> Iterator[str]:
    name = buildah("from", image)
    try:
        yield name
    finally:
        buildah("rm", name)


def run_in(name: str, *command: str) -> str:
    return buildah("run", "--isolation", "chroot", name, "--", *command)


@pytest.fixture(scope="module")
def images() -> dict[str, str]:
    return build_images()


@pytest.fixture(scope="module")
def engine(images: dict[str, str]) -> Iterator[str]:
    with container(images["engine"]) as name:
        yield name


@pytest.fixture(scope="module")
def operator(images: dict[str, str]) -> Iterator[str]:
    with container(images["operator"]) as name:
        yield name


def test_engine_image_serves_and_fetches(engine: str) -> None:
    told = run_in(engine, "octavo-engine", "--help")

    assert "serve" in told
    assert "fetch" in told


def test_engine_image_computes_as_a_user_without_rights(engine: str) -> None:
    script = "import torch, os; print(int(torch.ones(3).sum()), os.getuid(), os.getgid())"

    assert run_in(engine, "python", "-c", script) == "3 10001 10001"


def test_operator_image_has_no_torch_and_no_engine(operator: str) -> None:
    script = (
        "from importlib.util import find_spec;"
        "print([name for name in ('torch', 'octavo_engine', 'octavo_operator', 'octavo') if find_spec(name)])"
    )

    assert run_in(operator, "python", "-c", script) == "['octavo_operator', 'octavo']"


def test_operator_image_can_load_the_operator(operator: str) -> None:
    assert run_in(operator, "python", "-c", "import octavo_operator.shell, os; print(os.getuid())") == "10001"


def test_certificates_of_this_machine_stay_out_of_the_images(engine: str, operator: str) -> None:
    with container(base_image()) as base:
        of_the_base = run_in(base, "sha256sum", CERTIFICATES)

    assert run_in(engine, "sha256sum", CERTIFICATES) == of_the_base
    assert run_in(operator, "sha256sum", CERTIFICATES) == of_the_base
