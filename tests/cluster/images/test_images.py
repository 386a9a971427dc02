"""What an image is made of, and what the build is told, without building anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.images.build import IMAGES, ROOT, Image, content_digest, pip_arguments

EVERY_IMAGE = pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
IMAGE = Image(name="probe", dockerfile="probe/Dockerfile", sources=("probe/code",))


def copied_from_the_checkout(image: Image) -> set[str]:
    lines = (ROOT / image.dockerfile).read_text().splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    return {source for sources in copies for source in sources}


def allowed_into_the_context() -> set[str]:
    return {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in IMAGE.inputs:
        place = tmp_path / name
        if "." in name or name.endswith(("LICENSE", "Dockerfile")):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(name)
        else:
            place.mkdir(parents=True)
            (place / "module.py").write_text(name)
    return tmp_path


def digest(checkout: Path, base_id: str = "base") -> str:
    return content_digest(IMAGE, base_id=base_id, root=checkout)


@EVERY_IMAGE
def test_everything_a_dockerfile_copies_counts_for_its_tag(image: Image) -> None:
    roots = {source.partition("/")[0] for source in image.inputs}

    assert copied_from_the_checkout(image) <= roots


@EVERY_IMAGE
def test_everything_that_counts_for_a_tag_gets_into_the_context(image: Image) -> None:
    assert set(image.inputs) - {image.dockerfile} <= allowed_into_the_context()


@EVERY_IMAGE
def test_base_is_pinned_to_a_patch_version_and_the_user_is_not_root(image: Image) -> None:
    text = (ROOT / image.dockerfile).read_text()

    assert re.search(r"^ARG BASE=docker\.io/library/python:3\.11\.\d+-slim-bookworm$", text, re.MULTILINE)
    assert [line for line in text.splitlines() if line.startswith("USER ")] == ["USER 10001:10001"]


def test_operator_image_takes_nothing_of_the_engine() -> None:
    operator = next(image for image in IMAGES if image.name == "operator")

    assert not [source for source in copied_from_the_checkout(operator) if source.startswith("engine")]
    assert "torch" not in re.sub(r"^#.*$", "", (ROOT / operator.dockerfile).read_text(), flags=re.MULTILINE)


def test_digest_stays_when_nothing_but_bytecode_appears(checkout: Path) -> None:
    before = digest(checkout)
    (checkout / "probe/code/__pycache__").mkdir()
    (checkout / "probe/code/__pycache__/module.pyc").write_bytes(b"compiled")

    assert digest(checkout) == before


@pytest.mark.parametrize("changed", ["probe/Dockerfile", "constraints.txt", "probe/code/module.py"])
def test_digest_changes_when_a_file_changes(checkout: Path, changed: str) -> None:
    before = digest(checkout)
    (checkout / changed).write_text("changed")

    assert digest(checkout) != before


def test_digest_changes_when_a_file_is_renamed_or_the_base_differs(checkout: Path) -> None:
    before = digest(checkout)
    assert digest(checkout, base_id="other") != before

    (checkout / "probe/code/module.py").rename(checkout / "probe/code/renamed.py")
    assert digest(checkout) != before


def test_pip_in_the_build_is_told_nothing_when_the_machine_sets_nothing() -> None:
    assert pip_arguments({}) == []


def test_pip_in_the_build_gets_the_index_and_the_certificates_of_the_machine() -> None:
    arguments = pip_arguments(
        {"PIP_EXTRA_INDEX_URL": "https://wheels.example", "SSL_CERT_FILE": "/certs.pem"}
    )

    assert arguments == [
        *("--build-arg", "PIP_EXTRA_INDEX_URL=https://wheels.example"),
        *("--volume", "/certs.pem:/etc/ssl/certs/ca-certificates.crt:ro"),
        *("--build-arg", "PIP_CERT=/etc/ssl/certs/ca-certificates.crt"),
    ]
