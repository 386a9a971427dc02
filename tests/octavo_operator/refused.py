"""What must be refused, whoever is asked: the API server by its definition, or the typed values alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

URI = "hf://organization/model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One object, and what every refusal of it says."""

    case: str
    said: str
    name: str = "tiny"
    spec: dict[str, Any] = field(default_factory=dict)


REFUSED = (
    Refused(case="name too long", name="a" * 41, said="at most 40"),
    Refused(case="name starts with a digit", name="3b-model", said="letter"),
    Refused(case="name with a dot", name="llama-3.1", said="letter"),
    Refused(
        case="min above max",
        spec={"autoscaling": {"minReplicas": 5, "maxReplicas": 2}},
        said="minReplicas must be at most spec.autoscaling.maxReplicas",
    ),
    Refused(case="min 0", spec={"autoscaling": {"minReplicas": 0, "maxReplicas": 3}}, said="minReplicas"),
    Refused(case="max 0", spec={"autoscaling": {"minReplicas": 1, "maxReplicas": 0}}, said="maxReplicas"),
    Refused(case="no max", spec={"autoscaling": {"minReplicas": 3}}, said="maxReplicas"),
    Refused(case="reserved flag", spec={"engine": {"args": ["--port=1"]}}, said="sets itself"),
    Refused(case="reserved flag, apart", spec={"engine": {"args": ["--model", "x"]}}, said="sets itself"),
    Refused(
        case="reserved env",
        spec={"engine": {"env": [{"name": "HF_ENDPOINT", "value": "x"}]}},
        said="HF_ENDPOINT",
    ),
    Refused(
        case="env twice",
        spec={"engine": {"env": [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]}},
        said="env",
    ),
    Refused(
        case="weight twice",
        spec={
            "rollout": {
                "canarySteps": [
                    {"weightPercent": 10, "durationSeconds": 1},
                    {"weightPercent": 10, "durationSeconds": 1},
                ]
            }
        },
        said="each step must give more than the last",
    ),
    Refused(
        case="label of ours",
        spec={"template": {"metadata": {"labels": {"octavo.dev/revision": "x"}}}},
        said="template.metadata.labels sets a key of the operator's own",
    ),
    Refused(
        case="annotation of ours",
        spec={"template": {"metadata": {"annotations": {"app.kubernetes.io/name": "x"}}}},
        said="template.metadata.annotations sets a key of the operator's own",
    ),
    Refused(
        case="branch under RequirePinned",
        spec={"model": {"uri": URI, "revisionPolicy": "RequirePinned"}},
        said="octavo pin",
    ),
    Refused(
        case="folder under Track",
        spec={"model": {"uri": "pvc://models/tiny", "revisionPolicy": "Track"}},
        said="refreshToken",
    ),
    Refused(
        case="keys in two places",
        spec={
            "engine": {
                "apiKeySecretRef": {"name": "keys"},
                "env": [{"name": "OCTAVO_API_KEY", "value": "plain"}],
            }
        },
        said="remove it from env",
    ),
    Refused(
        case="gate that has no key",
        spec={
            "engine": {"apiKeySecretRef": {"name": "keys"}},
            "rollout": {"gate": {"quality": {"configMapRef": {"name": "probes"}}}},
        },
        said="spec.engine.apiKeySecretRef; remove one of the two",
    ),
    Refused(case="unknown scheme", spec={"model": {"uri": "s3://bucket/model"}}, said="spec.model.uri"),
    Refused(case="no quantity", spec={"resources": {"memory": "lots"}}, said="spec.resources.memory"),
)
