"""The cluster as a person's kubectl sees it: the same kubeconfig, context, namespace and rights."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.config.kube_config import list_kube_config_contexts

from octavo.errors import OctavoError
from octavo_operator.api import names

Body = dict[str, Any]
FIELD_MANAGER = "octavo-cli"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TIMEOUT_SECONDS = 30


class ClusterUnavailable(OctavoError):
    """No kubeconfig, no answer, or no right to ask."""


class NotFound(OctavoError):
    """There is no such object."""


class EditRefused(OctavoError):
    """The API server does not take an edit; its own words."""


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """As kubectl's own."""
    group = parser.add_argument_group("cluster")
    group.add_argument("-n", "--namespace", metavar="NS", help="default: the kubeconfig context's")
    group.add_argument("--context", metavar="NAME", help="default: the kubeconfig's current one")
    group.add_argument(
        "--kubeconfig", metavar="FILE", help="default: as kubectl (KUBECONFIG, ~/.kube/config)"
    )


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Reads and edits of InferenceServices and their revisions in one namespace."""

    api: client.ApiClient
    namespace: str

    @property
    def _objects(self) -> client.CustomObjectsApi:
        return client.CustomObjectsApi(self.api)

    def read_service(self, name: str) -> Body:
        def ask() -> Body:
            body: Body = self._objects.get_namespaced_custom_object(
                *self._place(), name, _request_timeout=TIMEOUT_SECONDS
            )
            return body

        return answered(ask, f"InferenceService {self.namespace}/{name}")

    def list_services(self, *, everywhere: bool) -> list[Body]:
        def ask() -> Body:
            found: Body = (
                self._objects.list_cluster_custom_object(
                    names.GROUP, names.VERSION, names.PLURAL, _request_timeout=TIMEOUT_SECONDS
                )
                if everywhere
                else self._objects.list_namespaced_custom_object(
                    *self._place(), _request_timeout=TIMEOUT_SECONDS
                )
            )
            return found

        items: list[Body] = answered(ask, "InferenceServices")["items"]
        return items

    def list_revisions(self, service: str) -> list[Body]:
        """ControllerRevisions of one service, oldest first."""

        def ask() -> Body:
            answer = client.AppsV1Api(self.api).list_namespaced_controller_revision(
                self.namespace,
                label_selector=f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY},{names.LABEL_SERVICE}={service}",
                _preload_content=False,
                _request_timeout=TIMEOUT_SECONDS,
            )
            body: Body = json.loads(answer.data)
            return body

        return sorted(answered(ask, f"revisions of {service}")["items"], key=lambda one: one["revision"])

    def edit_service(self, name: str, patch: Body, *, dry_run: bool) -> Body:
        """A merge patch under this program's own field manager."""

        def ask() -> Body:
            body: Body = self._objects.patch_namespaced_custom_object(
                *self._place(),
                name,
                patch,
                field_manager=FIELD_MANAGER,
                _content_type=MERGE_PATCH,
                _request_timeout=TIMEOUT_SECONDS,
                **({"dry_run": "All"} if dry_run else {}),
            )
            return body

        return answered(ask, f"InferenceService {self.namespace}/{name}")

    def try_apply(self, name: str, body: Body, *, field_manager: str) -> Body:
        """What the object would be after a server-side apply; nothing is stored."""

        def ask() -> Body:
            answer = self._objects.patch_namespaced_custom_object(
                *self._place(),
                name,
                body,
                field_manager=field_manager,
                force=True,
                dry_run="All",
                _content_type=APPLY_PATCH,
                # The client passes over the body of a 201, which answers for an object that is new.
                _preload_content=False,
                _request_timeout=TIMEOUT_SECONDS,
            )
            applied: Body = json.loads(answer.data)
            return applied

        return answered(ask, f"InferenceService {self.namespace}/{name}")

    def _place(self) -> tuple[str, str, str, str]:
        return names.GROUP, names.VERSION, self.namespace, names.PLURAL


def connect(options: argparse.Namespace) -> ClusterAccess:
    """Raises ClusterUnavailable where there is no kubeconfig that can be used."""
    try:
        api = config.new_client_from_config(config_file=options.kubeconfig, context=options.context)
        return ClusterAccess(api, options.namespace or _namespace_of(options))
    except (config.ConfigException, OSError) as error:
        raise ClusterUnavailable(f"--kubeconfig: {error}") from None


def _namespace_of(options: argparse.Namespace) -> str:
    contexts, current = list_kube_config_contexts(config_file=options.kubeconfig)
    chosen = next((one for one in contexts if one["name"] == options.context), current)
    namespace: str = chosen.get("context", {}).get("namespace") or "default"
    return namespace


def answered(ask: Callable[[], Body], what: str) -> Body:
    """The answer, or the API server's own words as an error of ours."""
    try:
        return ask()
    except client.ApiException as error:
        raise _refusal(error, what) from None
    except urllib3.exceptions.HTTPError as error:
        raise ClusterUnavailable(f"{what}: the API server cannot be reached ({error})") from None


def _refusal(error: client.ApiException, what: str) -> OctavoError:
    said = _message_of(error)
    if error.status == 404 and not _is_answer(error):
        return ClusterUnavailable(
            f"{what}: the cluster does not serve {names.API_VERSION}; is Octavo installed?"
        )
    if error.status == 404:
        return NotFound(f"{what}: {said}")
    if error.status in (401, 403):
        return ClusterUnavailable(f"{what}: {said}")
    return EditRefused(f"{what}: {said}")


def _is_answer(error: client.ApiException) -> bool:
    """Of the API; a path that nothing serves is answered by the web server alone."""
    return "kind" in str(error.body)


def _message_of(error: client.ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        return f"{error.status} {error.reason}"
