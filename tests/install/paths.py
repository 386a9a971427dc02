"""Where the installation's sources and generated files lie."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "octavo"
CRDS: Final = ROOT / "crds"
CHART_CRDS: Final = CHART / "files" / "crds"
CHART_RULES: Final = CHART / "files" / "operator-rules.yaml"
CHART_LEASE_RULES: Final = CHART / "files" / "operator-lease-rules.yaml"
MANIFEST: Final = ROOT / "manifests" / "install.yaml"
SAMPLE: Final = ROOT / "manifests" / "samples" / "smollm2.yaml"
RELEASE: Final = "octavo"
NAMESPACE: Final = "octavo-system"
