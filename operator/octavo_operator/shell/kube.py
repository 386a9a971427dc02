"""The API server, as far as the operator writes to it: apply, delete, tell."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from kubernetes.aio import client, config

from octavo_operator.api import names
from octavo_operator.api.status import InferenceServiceStatus, render_status
from octavo_operator.decide.events import EventDraft
from octavo_operator.desired.metadata import Manifest, Owner
from octavo_operator.shell.kinds import EVENTS, INFERENCE_SERVICES, KINDS_BY_NAME, Kind

APPLY_CONTENT_TYPE: Final = "application/apply-patch+yaml"
MERGE_CONTENT_TYPE: Final = "application/merge-patch+json"
JSON_CONTENT_TYPE: Final = "application/json"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Asks for the metadata of listed objects alone."""
REQUEST_TIMEOUT_SECONDS: Final = 30
MOST_AT_ONCE: Final = 32
"""Requests under way: more would not be answered sooner, but later than we wait for them."""
WATCH_SECONDS: Final = 300
SILENT_SECONDS: Final = 90
"""Without as much as a bookmark, after which the connection is taken for lost."""
PAGE_OBJECTS: Final = 100
"""Listed at once: with all that a pod says of itself, one page is about a megabyte of text."""
METADATA_PAGE_OBJECTS: Final = 500
"""As much text, of metadata alone."""
MAX_EVENT_MESSAGE: Final = 1024
"""Bytes; longer ones are refused by the API server."""
PASSING_STATUSES: Final = (401, 409, 429)
"""A token that has just expired, a conflict, too many requests."""
INVALID_STATUSES: Final = (400, 422)
"""The object itself is wrong; a quota or a right that lacks is 403."""
WEBHOOK: Final = "failed calling webhook"
WRONG_TYPE: Final = "failed to create typed patch object"
"""Of a field, as a number where text must be: the API server answers 500, and always will."""
NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
Body = dict[str, Any]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Part of a listing."""

    items: list[Body]
    version: str
    """Of the whole listing: a watch goes on from there."""


class ApiUnreachable(Exception):
    """No answer of the API server, or none in time."""


class ApiRefused(Exception):
    """An answer of the API server that is no success; its text is the server's own."""

    def __init__(self, status: int, message: str, causes: frozenset[str] = frozenset()) -> None:
        super().__init__(f"{message} (HTTP {status})")
        self.status = status
        self.in_vain = NAMESPACE_TERMINATING in causes
        """Nothing can be made in a namespace that is being deleted, nor need it be."""
        lasting = WEBHOOK in message or WRONG_TYPE in message
        self.is_passing = status in PASSING_STATUSES or (status >= 500 and not lasting)
        """It says nothing about what was asked; another try may do. A webhook's failure is told the user."""
        self.is_invalid = status in INVALID_STATUSES or WRONG_TYPE in message
        """The same object will be refused again: somebody must change what was asked, or a policy."""


def read_refusal(status: int, data: bytes) -> ApiRefused:
    """What the answer's Status object says, or the bare number."""
    try:
        answer = json.loads(data)
        causes = (answer.get("details") or {}).get("causes") or ()
        reasons = frozenset(str(cause.get("reason")) for cause in causes)
        return ApiRefused(status, str(answer["message"]), reasons)
    except (ValueError, TypeError, KeyError, AttributeError):
        return ApiRefused(status, data.decode(errors="replace")[:MAX_EVENT_MESSAGE])


async def connect() -> Kube:
    """With KUBECONFIG if that is set, else as the pod's service account, else as the user's kubectl does."""
    if os.environ.get("KUBECONFIG"):
        await config.load_kube_config()
    else:
        try:
            config.load_incluster_config()
        except config.ConfigException:
            await config.load_kube_config()
    return Kube(client.ApiClient())


class Kube:
    """A thin client for server-side apply; conflicts and refusals are its callers' to judge."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    def apart(self) -> Kube:
        """The same connection, for what must not wait behind other requests."""
        return Kube(self._api)

    async def close(self) -> None:
        await self._api.close()

    async def apply(self, manifest: Manifest) -> Body:
        """Own the fields of the manifest, whoever else set them; returns the stored object."""
        metadata = manifest["metadata"]
        path = KINDS_BY_NAME[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        return await self._apply(path, manifest)

    async def create(self, manifest: Manifest) -> Body:
        """For what can never be changed; refused with 409 where there is one of its name."""
        kind, namespace = KINDS_BY_NAME[manifest["kind"]], manifest["metadata"]["namespace"]
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self._request("POST", kind.path(namespace), body=manifest, query=query)

    async def replace(self, manifest: Manifest) -> Body:
        """Refused with 409 if its resourceVersion is no longer that of what is stored."""
        metadata = manifest["metadata"]
        path = KINDS_BY_NAME[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        return await self._request("PUT", path, body=manifest, query={"fieldManager": names.FIELD_MANAGER})

    async def apply_status(self, owner: Owner, status: InferenceServiceStatus) -> Body | None:
        """Only the status; the uid keeps it from an object of the same name made since. None: it is gone."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid},
            "status": render_status(status),
        }
        try:
            return await self._apply(INFERENCE_SERVICES.path(owner.namespace, owner.name, "status"), body)
        except ApiRefused as refused:
            if refused.status == 404:
                return None
            raise

    async def _apply(self, path: str, body: Body) -> Body:
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
        return await self._request("PATCH", path, body=body, query=query, content_type=APPLY_CONTENT_TYPE)

    async def overwrite(self, manifest: Manifest) -> Body:
        """Lists of the manifest replace what is stored; an apply would leave in what others added."""
        metadata = manifest["metadata"]
        path = KINDS_BY_NAME[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self._request("PATCH", path, body=manifest, query=query, content_type=MERGE_CONTENT_TYPE)

    async def annotate(self, kind: Kind, namespace: str, name: str, annotations: dict[str, str]) -> None:
        """Some annotations of an object that is not ours; that it is gone already is as good."""
        body = {"metadata": {"annotations": annotations}}
        query = {"fieldManager": names.FIELD_MANAGER}
        try:
            await self._request(
                "PATCH", kind.path(namespace, name), body=body, query=query, content_type=MERGE_CONTENT_TYPE
            )
        except ApiRefused as refused:
            if refused.status != 404:
                raise

    async def list_all(self, kind: Kind, namespace: str, selector: str) -> AsyncIterator[Page]:
        """Page by page, of all namespaces if none is named."""
        async for page in self._pages(kind, namespace, selector, limit=PAGE_OBJECTS):
            yield page

    async def list_metadata(self, kind: Kind, namespace: str, selector: str) -> AsyncIterator[Page]:
        """Likewise, bodies without spec and status."""
        pages = self._pages(kind, namespace, selector, limit=METADATA_PAGE_OBJECTS, accept=METADATA_LIST)
        async for page in pages:
            yield page

    async def _pages(
        self, kind: Kind, namespace: str, selector: str, *, limit: int, accept: str = JSON_CONTENT_TYPE
    ) -> AsyncIterator[Page]:
        query = {"limit": str(limit), **({"labelSelector": selector} if selector else {})}
        more: str | None = ""
        while more is not None:
            step = {**query, "continue": more} if more else query
            answer = await self._request("GET", kind.path(namespace), query=step, accept=accept)
            more = answer["metadata"].get("continue") or None
            yield Page(items=answer.get("items") or [], version=answer["metadata"]["resourceVersion"])

    async def read_listed(self, kind: Kind, namespace: str, name: str, *, selector: str) -> Body | None:
        """With the right to list alone, which is all that we have on kinds that we never write."""
        query = {"fieldSelector": f"metadata.name={name}", "labelSelector": selector}
        answer = await self._request("GET", kind.path(namespace), query=query)
        return next(iter(answer.get("items") or ()), None)

    async def read(self, kind: Kind, namespace: str, name: str) -> Body | None:
        try:
            return await self._request("GET", kind.path(namespace, name))
        except ApiRefused as refused:
            if refused.status == 404:
                return None
            raise

    async def delete(self, kind: Kind, namespace: str, name: str) -> None:
        """Its own children go in the background; that it is gone already is as good."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        try:
            await self._request("DELETE", kind.path(namespace, name), body=body)
        except ApiRefused as refused:
            if refused.status != 404:
                raise

    async def tell(self, owner: Owner, draft: EventDraft, *, now: datetime) -> None:
        """Post a Kubernetes Event; one that is refused is only logged, unless all is in vain (ApiRefused)."""
        body = build_event(owner, draft, now=now)
        try:
            await self._request("POST", EVENTS.path(owner.namespace), body=body)
        except (ApiRefused, ApiUnreachable) as error:
            if isinstance(error, ApiRefused) and error.in_vain:
                raise
            logger.warning("event %s was refused: %s", draft.reason, error)

    async def serves(self, kind: Kind) -> bool:
        try:
            answer = await self._request("GET", f"/apis/{kind.group}/{kind.version}")
        except ApiRefused as refused:
            if refused.status == 404:
                return False
            raise
        return any(one.get("name") == kind.plural for one in answer.get("resources") or ())

    async def watch(
        self, kind: Kind, namespace: str, selector: str, *, version: str
    ) -> AsyncIterator[tuple[str, Body]]:
        """What has changed since then, and a BOOKMARK every minute, until the API server ends it."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        call = await self._serialize("GET", kind.path(namespace), query=query)
        timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENT_SECONDS)
        try:
            response = await self._api.call_api(*call, _request_timeout=timeout)
            if response.status != HTTPStatus.OK:
                raise read_refusal(response.status, await response.read())
            async for line in read_lines(response.response.content.iter_any()):
                yield read_event(json.loads(line))
        except aiohttp.SocketTimeoutError:
            logger.debug("the watch on %s is silent", kind.name)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise ApiUnreachable(f"{type(error).__name__}: {error}".rstrip(": ")) from error

    async def _serialize(
        self,
        method: str,
        path: str,
        *,
        body: Body | None = None,
        query: dict[str, str] | None = None,
        content_type: str = JSON_CONTENT_TYPE,
        accept: str = JSON_CONTENT_TYPE,
    ) -> tuple[Any, ...]:
        call: tuple[Any, ...] = await self._api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": accept, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        return call

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Body | None = None,
        query: dict[str, str] | None = None,
        content_type: str = JSON_CONTENT_TYPE,
        accept: str = JSON_CONTENT_TYPE,
    ) -> Body:
        call = await self._serialize(
            method, path, body=body, query=query, content_type=content_type, accept=accept
        )
        try:
            async with self._places:
                response = await self._api.call_api(*call, _request_timeout=REQUEST_TIMEOUT_SECONDS)
                data = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiUnreachable(f"{type(error).__name__}: {error}".rstrip(": ")) from error
        if not 200 <= response.status <= 299:
            raise read_refusal(response.status, data)
        answer: Body = json.loads(data)
        return answer


async def read_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Of any length, which aiohttp's own lines are not."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


def read_event(event: Body) -> tuple[str, Body]:
    """Raises ApiRefused for an event that is the watch's own failure."""
    body: Body = event["object"]
    if event["type"] == "ERROR":
        raise ApiRefused(int(body.get("code", 500)), str(body.get("message", "the watch failed")))
    return str(event["type"]), body


def cut_bytes(text: str, most: int) -> str:
    """
    >>> cut_bytes("2 × 3", 3)
    '2 '
    """
    return text.encode(errors="replace")[:most].decode(errors="ignore")


def build_event(owner: Owner, draft: EventDraft, *, now: datetime) -> Body:
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{owner.name}.", "namespace": owner.namespace},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": owner.name,
            "namespace": owner.namespace,
            "uid": owner.uid,
        },
        "type": draft.type,
        "reason": draft.reason,
        "message": cut_bytes(draft.message, MAX_EVENT_MESSAGE),
        "action": "Reconcile",
        "eventTime": stamp,
        "reportingComponent": names.FIELD_MANAGER,
        "reportingInstance": names.FIELD_MANAGER,
    }
