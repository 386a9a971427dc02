"""The CustomResourceDefinition, generated from the typed values.

Pydantic's JSON schema is turned into a *structural* schema: references inlined, `null` alternatives and
titles dropped, and only keywords that the API server takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from octavo_operator.api import names
from octavo_operator.api.spec import InferenceServiceSpec, cel
from octavo_operator.api.status import UNVISITED_GENERATION, InferenceServiceStatus

CRD_NAME: Final = f"{names.PLURAL}.{names.GROUP}"
DROPPED: Final = frozenset({"title", "$defs", "additionalProperties"})
EMPTY_DEFAULTS: Final[tuple[object, ...]] = ("", [])
"""Say no more than a field's absence, and would show up in every stored object."""

NAME_RULES: Final = (
    cel(
        f"self.metadata.name.size() <= {names.MAX_NAME_LENGTH}",
        f"metadata.name must be at most {names.MAX_NAME_LENGTH} characters long, since the names of pods and "
        "Services are made from it",
    ),
    cel(
        f"self.metadata.name.matches('{names.DNS_1035}')",
        "metadata.name must start with a lower-case letter and hold only lower-case letters, digits and '-', "
        "since a Service carries it",
    ),
)


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """One node of pydantic's schema as the API server wants it."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        return structural({**target, **{key: schema[key] for key in schema if key != "$ref"}}, definitions)
    if "anyOf" in schema:
        alternatives = [one for one in schema["anyOf"] if one.get("type") != "null"]
        assert len(alternatives) == 1, f"not structural: {schema}"
        rest = {key: schema[key] for key in schema if key not in ("anyOf", "default")}
        return structural({**alternatives[0], **rest}, definitions)
    node = {key: value for key, value in schema.items() if key not in DROPPED}
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if node.get("default") in EMPTY_DEFAULTS:
        del node["default"]
    if node.get("x-kubernetes-int-or-string"):
        del node["type"]
        node["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if isinstance(schema.get("additionalProperties"), Mapping):
        node["additionalProperties"] = structural(schema["additionalProperties"], definitions)
    if "properties" in node:
        node["properties"] = {
            name: with_section_default(structural(child, definitions), child)
            for name, child in node["properties"].items()
        }
    if "items" in node:
        node["items"] = structural(node["items"], definitions)
    return node


def with_section_default(node: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """`{}` as the default of a section without a required field, unless its absence has a meaning.

    The API server fills in the defaults of fields only where the object that holds them is there.
    """
    if node.get("type") == "object" and not node.get("required") and "anyOf" not in schema:
        node["default"] = {}
    return node


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True)
    return structural(schema, schema.get("$defs", {}))


def without_defaults(node: dict[str, Any]) -> dict[str, Any]:
    """For status: what the operator did not write must not appear there."""
    for child in node.get("properties", {}).values():
        child.pop("default", None)
        without_defaults(child)
    return node


def printer_column(name: str, path: str, *, kind: str = "string", wide: bool = False) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if wide else {})}


PRINTER_COLUMNS: Final = (
    printer_column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    printer_column("Model", ".spec.model.uri"),
    printer_column("Revision", ".status.model.shortRevision"),
    printer_column("Replicas", ".status.readyReplicas", kind="integer"),
    printer_column("Desired", ".status.autoscaling.desiredReplicas", kind="integer"),
    printer_column("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    printer_column("Age", ".metadata.creationTimestamp", kind="date"),
    printer_column("Device", ".status.memoryPlan.device", wide=True),
    printer_column("KV tokens", ".status.memoryPlan.kvTokens", kind="integer", wide=True),
    printer_column("Limited by", ".status.autoscaling.limitedBy", wide=True),
    printer_column("URL", ".status.url", wide=True),
)


def build_schema() -> dict[str, Any]:
    status = without_defaults(schema_of(InferenceServiceStatus))
    status["default"] = {"observedGeneration": UNVISITED_GENERATION}
    return {
        "description": "Serves one language model: pinned weights, a memory plan, engine pods.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this schema."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},
            "spec": schema_of(InferenceServiceSpec),
            "status": status,
        },
        "x-kubernetes-validations": list(NAME_RULES),
    }


def build_crd() -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME, "labels": {names.LABEL_NAME: "octavo"}},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": [names.CATEGORY],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": build_schema()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [dict(column) for column in PRINTER_COLUMNS],
                }
            ],
        },
    }
