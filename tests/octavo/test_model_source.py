"""What `spec.model.uri` may say, and which words can only ever mean the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidSpec
from octavo.model_source import (
    HubSource,
    ImageSource,
    ModelSource,
    VolumeSource,
    is_commit_of,
    model_folder,
    parse_model_uri,
)

GIT = "0123456789" * 4
CONTENT = f"sha256:{'c0ffee01' * 8}"
HUB = HubSource(repository="org/name")
VOLUME = VolumeSource(claim="models", path="")


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("hf://Qwen/Qwen3-8B", HubSource(repository="Qwen/Qwen3-8B")),
        ("hf://gpt2", HubSource(repository="gpt2")),
        ("pvc://models", VOLUME),
        ("pvc://models/", VOLUME),
        ("pvc://team.models-1/qwen 3/8b;ü", VolumeSource(claim="team.models-1", path="qwen 3/8b;ü")),
        ("oci://ghcr.io/org/model:v1", ImageSource(reference="ghcr.io/org/model:v1")),
        ("oci://registry:5000/a/b__c", ImageSource(reference="registry:5000/a/b__c")),
        (f"oci://ghcr.io/m@{CONTENT}", ImageSource(reference=f"ghcr.io/m@{CONTENT}")),
    ],
)
def test_uri_names_its_source(uri: str, source: ModelSource) -> None:
    assert parse_model_uri(uri) == source


@pytest.mark.parametrize(
    "uri",
    [
        *("", "org/name", "s3://bucket/name", "://name", "HF://org/name", "hf:org/name"),
        *("hf://", "hf://a/b/c", "hf://-a/b", "hf://org/m$(touch x)", "hf://org/", "hf://../b", "hf://a/.."),
        *("pvc://", "pvc:///path", "pvc://Models/a", "pvc://models/../../etc", "pvc://models/a/./b"),
        *("pvc://models//a", "pvc://models/a/", "pvc://models/a\0b", "pvc://-a/b"),
        *("oci://", "oci://model", "oci://ghcr.io/Org/model", "oci://ghcr.io/m@sha256:12", "oci://a/b c"),
        "hf://org/" + "x" * 2000,
    ],
)
def test_uri_of_another_form_is_refused_with_the_form_that_is_right(uri: str) -> None:
    with pytest.raises(InvalidSpec, match="uri") as caught:
        parse_model_uri(uri)
    assert len(str(caught.value)) < 350


@given(st.sampled_from(["hf://", "pvc://", "oci://", ""]), st.text())
def test_any_text_gives_a_source_or_a_refusal(scheme: str, rest: str) -> None:
    try:
        source = parse_model_uri(scheme + rest)
    except InvalidSpec:
        return
    assert not isinstance(source, VolumeSource) or ".." not in source.path.split("/")


@pytest.mark.parametrize(
    ("source", "revision", "pinned"),
    [
        (HUB, GIT, True),
        (HUB, "main", False),
        (HUB, GIT[:12], False),
        (HUB, CONTENT, False),
        (VOLUME, CONTENT, True),
        (VOLUME, GIT, False),
        (VOLUME, "sha256:12", False),
        (ImageSource(reference="ghcr.io/m"), CONTENT, True),
    ],
)
def test_words_are_pinned_only_when_they_are_a_whole_digest(
    source: ModelSource, revision: str, pinned: bool
) -> None:
    assert is_commit_of(source, revision) is pinned


def test_folders_of_two_commits_differ_and_are_names_on_any_file_system() -> None:
    assert model_folder(GIT) == f"/models/{GIT}"
    assert ":" not in model_folder(CONTENT)
