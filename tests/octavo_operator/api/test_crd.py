"""The generated definition: current, structural, bounded, described."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from octavo.errors import InvalidSpec
from octavo_operator.api.crd import build_crd, build_schema
from octavo_operator.api.generate import generated_files, main, outdated_files
from octavo_operator.api.names import MAX_NAME_LENGTH, pins_name, revision_name
from octavo_operator.api.quantities import (
    format_cpu,
    format_memory,
    parse_cpu_millis,
    parse_memory_bytes,
)
from octavo_operator.api.spec import InferenceServiceSpec
from octavo_operator.api.status import InferenceServiceStatus, parse_status, render_status

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = sorted((ROOT / "manifests/samples").glob("*.yaml"))
UNBOUNDED = {"metadata", "apiVersion", "kind", "lastTransitionTime", "resolvedAt", "time", "provenAt"}


def nodes(node: dict[str, Any], name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield name, node
    for child, value in node.get("properties", {}).items():
        yield from nodes(value, child)
    if "items" in node:
        yield from nodes(node["items"], f"{name}[]")


def test_committed_files_are_what_the_generator_writes() -> None:
    assert outdated_files(ROOT) == [], "run `make generate`"


def test_generator_writes_what_is_missing_and_then_finds_nothing(tmp_path: Path) -> None:
    assert main(["--root", str(tmp_path), "--check"]) == 1
    assert main(["--root", str(tmp_path)]) == 0
    assert main(["--root", str(tmp_path), "--check"]) == 0
    assert all((tmp_path / path).is_file() for path in generated_files())


def test_schema_is_structural_and_every_field_is_described() -> None:
    for name, node in nodes(build_schema()):
        assert not {"$ref", "title", "allOf", "oneOf"} & set(node), name
        assert "additionalProperties" not in node or node["additionalProperties"]["type"] == "string", name
        assert "type" in node or node.get("x-kubernetes-int-or-string"), name
        if name not in ("", "metadata") and not name.endswith("[]"):
            assert node["description"].endswith((".", "`")), name


def test_service_without_an_slo_gate_is_not_told_of_one() -> None:
    """With a default of `{}` every service had one, and was told that its strategy does not fit."""
    spec = build_schema()["properties"]["spec"]["properties"]
    gate = spec["rollout"]["properties"]["gate"]
    assert gate["default"] == {}
    assert gate["properties"]["load"]["default"] is True
    for optional in (gate["properties"]["slo"], spec["template"], spec["autoscaling"]):
        assert "default" not in optional


def test_schema_bounds_every_string_and_list() -> None:
    for name, node in nodes(build_schema()):
        if node.get("type") == "string" and "enum" not in node and name not in UNBOUNDED:
            assert "maxLength" in node, name
        if node.get("type") == "array":
            assert "maxItems" in node, name


def test_definition_has_the_names_that_users_know() -> None:
    crd = build_crd()
    (version,) = crd["spec"]["versions"]
    assert crd["metadata"]["name"] == "inferenceservices.octavo.dev"
    assert crd["spec"]["names"]["shortNames"] == ["lsvc"]
    assert crd["spec"]["names"]["categories"] == ["octavo"]
    assert set(version["subresources"]) == {"status", "scale"}
    columns = [column["name"] for column in version["additionalPrinterColumns"] if "priority" not in column]
    assert columns == ["Ready", "Model", "Revision", "Replicas", "Desired", "Reason", "Age"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert status["default"] == {"observedGeneration": -1}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_sample_is_a_valid_spec(path: Path) -> None:
    InferenceServiceSpec.model_validate(yaml.safe_load(path.read_text())["spec"])


@given(
    st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True),
    st.text("0123456789abcdef", min_size=10, max_size=10),
)
def test_child_names_are_labels_for_every_name_that_is_let_through(name: str, revision: str) -> None:
    assert len(name) <= MAX_NAME_LENGTH
    for child in (revision_name(name, revision), pins_name(name)):
        assert len(child) <= 63
        assert child.startswith(name)


def test_cpu_may_be_a_plain_number() -> None:
    spec = InferenceServiceSpec.model_validate({"model": {"uri": "hf://a/b"}, "resources": {"cpu": 2}})
    assert spec.resources.cpu == "2"


def test_spec_ignores_fields_of_a_newer_schema() -> None:
    InferenceServiceSpec.model_validate({"model": {"uri": "hf://a/b", "cache": {}}, "suspend": True})


def test_spec_refuses_a_foreign_scheme() -> None:
    with pytest.raises(ValidationError, match="uri"):
        InferenceServiceSpec.model_validate({"model": {"uri": "s3://bucket/model"}})


def test_status_survives_writing_and_reading() -> None:
    status = InferenceServiceStatus(observed_generation=3, url="http://a", replicas=2)
    assert parse_status(render_status(status)) == status


def test_unreadable_status_counts_as_none() -> None:
    assert parse_status({"conditions": "none"}) == InferenceServiceStatus()


@given(st.integers(min_value=1, max_value=10**6))
def test_cpu_survives_writing_and_reading(millis: int) -> None:
    assert parse_cpu_millis(format_cpu(millis), field="cpu") == millis


@given(st.integers(min_value=1, max_value=2**45))
def test_memory_is_written_in_whole_mebibytes_and_never_less(num_bytes: int) -> None:
    written = parse_memory_bytes(format_memory(num_bytes), field="memory")
    assert num_bytes <= written < num_bytes + 2**20


@pytest.mark.parametrize("text", ["", "1Gib", "-1Gi", "x", "1e3"])
def test_memory_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.resources\.memory"):
        parse_memory_bytes(text, field="spec.resources.memory")


@pytest.mark.parametrize("text", ["0", "0.0", "m", "1.2345"])
def test_cpu_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.resources\.cpu"):
        parse_cpu_millis(text, field="spec.resources.cpu")


@pytest.mark.parametrize("weights", [(50, 10), (10, 10), (10, 50, 50)], ids=str)
def test_canary_whose_weights_do_not_rise_is_refused(weights: tuple[int, ...]) -> None:
    steps = [{"weightPercent": weight} for weight in weights]
    with pytest.raises(InvalidSpec, match="must give more than the last"):
        InferenceServiceSpec.model_validate({"model": {"uri": "hf://a/b"}, "rollout": {"canarySteps": steps}})
