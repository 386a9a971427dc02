"""Argo CD and Flux, as far as they read health: the shipped Lua and CEL, run as those programs run them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cel_expr_python import cel
from lupa import lua51

GITOPS = Path(__file__).resolve().parents[2] / "manifests" / "gitops"
LUA_KEY = "resource.customizations.health.octavo.dev_InferenceService"
Body = dict[str, Any]


@cache
def argocd_script() -> str:
    """Argo CD runs Lua 5.1."""
    script: str = yaml.safe_load((GITOPS / "argocd-cm.yaml").read_text())["data"][LUA_KEY]
    return script


def argocd_health(body: Body) -> tuple[str, str]:
    """Status and message, from a state without the libraries that Argo CD takes away."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True, register_eval=False)
    for library in ("os", "io", "debug", "package", "require", "dofile", "loadfile", "load", "loadstring"):
        lua.globals()[library] = None
    lua.globals().obj = lua.table_from(body, recursive=True)
    health = lua.execute(argocd_script())
    return str(health.status), str(health.message)


@cache
def flux_expressions() -> list[tuple[str, Callable[[Body], object]]]:
    """In the order of Flux' RFC 9: the first that holds gives the status."""
    kustomization = yaml.safe_load((GITOPS / "flux-kustomization.yaml").read_text())
    (entry,) = kustomization["spec"]["healthCheckExprs"]
    environment = cel.NewEnv(variables={"status": cel.Type.DYN, "metadata": cel.Type.DYN})

    def compiled(text: str) -> Callable[[Body], object]:
        expression = environment.compile(text)
        return lambda body: expression.eval(data=body).value()

    statuses = {"inProgress": "InProgress", "failed": "Failed", "current": "Current"}
    return [(status, compiled(entry[key])) for key, status in statuses.items()]


def flux_status(body: Body) -> str:
    """As Flux' status evaluator: the generation first, then the expressions, else InProgress."""
    observed = body["status"].get("observedGeneration")
    if observed is not None and observed != body["metadata"]["generation"]:
        return "InProgress"
    for status, holds in flux_expressions():
        answer = holds({"status": body["status"], "metadata": body["metadata"]})
        assert isinstance(answer, bool), f"the expression for {status} gave {answer!r}"
        if answer:
            return status
    return "InProgress"


def plain(body: Body) -> Body:
    """As it comes over the wire."""
    copied: Body = json.loads(json.dumps(body))
    return copied
