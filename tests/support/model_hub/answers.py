"""What the hub answers to a request: status, headers, body. No sockets in here.

Source: the routes and headers that `huggingface_hub` 1 and 2 read, and the answers of the public hub.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from tests.support.model_hub.store import (
    Commit,
    HubStore,
    StoredFile,
    UnknownRepository,
    UnknownRevision,
)

PUBLISHED: Final = "2024-11-06T12:00:00.000Z"
"""The same for every commit: the clock has no part in what is served."""
ROUTES: Final = re.compile(
    r"/api/models/(?P<api_repo>[^/]+/[^/]+)(?:/(?P<verb>revision|tree|refs|commits|paths-info)(?:/(?P<rest>.+))?)?"
    r"|/(?P<file_repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def has_token(self) -> bool:
        return "authorization" in self.headers

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBody:
    """A span of a file, with its first byte changed if the file is to be served corrupt."""

    path: Path
    start: int
    length: int
    corrupt: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | FileBody = b""


@dataclass(kw_only=True, eq=False)
class Refused(Exception):
    """A "no" in the hub's own form."""

    status: int
    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def reply(self) -> Reply:
        named = {"X-Error-Code": self.code, "X-Error-Message": self.message}
        return json_reply({"error": self.message}, status=self.status, headers={**named, **self.headers})


def answer(store: HubStore, request: Request, *, page_size: int) -> Reply:
    """The reply to any request; what is not there is a reply too."""
    if store.weather().outage:
        return Reply(status=503, headers={"Content-Type": "text/plain"}, body=b"Service Unavailable\n")
    route = ROUTES.fullmatch(urlsplit(request.target).path)
    if route is None:
        return Reply(status=404, headers={"X-Error-Message": "no such route"})
    try:
        if route["file_repo"]:
            return answer_file(store, request, route)
        return answer_api(store, request, route, page_size=page_size)
    except Refused as refused:
        return refused.reply
    except UnknownRepository:
        return _unknown_repository(request).reply
    except UnknownRevision as error:
        return Refused(status=404, code="RevisionNotFound", message=str(error)).reply


def _unknown_repository(request: Request) -> Refused:
    """Without a token the hub does not say whether a repository is private or absent: 401."""
    status = 404 if request.has_token else 401
    return Refused(status=status, code="RepoNotFound", message="Repository not found")


# Files ------------------------------------------------------------------------------------------
def answer_file(store: HubStore, request: Request, route: re.Match[str]) -> Reply:
    weather = store.weather()
    if weather.file_status is not None:
        return Reply(status=weather.file_status, headers={"Content-Type": "text/plain"}, body=b"No\n")
    if weather.redirect_to is not None:
        signed = f"{weather.redirect_to}{urlsplit(request.target).path}?Signature=secret"
        return Reply(status=302, headers={"Location": signed})
    repo, path = unquote(route["file_repo"]), unquote(route["path"])
    commit = store.resolve(repo, unquote(route["revision"]))
    at_commit = {"X-Repo-Commit": commit.sha}
    faults = store.faults(repo)
    if faults.gated and not (faults.token and request.token == faults.token):
        raise Refused(
            status=403 if request.has_token else 401,
            code="GatedRepo",
            message=f"Access to model {repo} is restricted: its terms have not been accepted.",
            headers=at_commit,
        )
    file = commit.file(path)
    if file is None or path in faults.hidden:
        raise Refused(status=404, code="EntryNotFound", message="Entry not found", headers=at_commit)
    return _file_reply(store, request, file, headers=at_commit, corrupt=path in faults.corrupt)


def _file_reply(
    store: HubStore, request: Request, file: StoredFile, *, headers: dict[str, str], corrupt: bool
) -> Reply:
    headers = {
        **headers,
        "ETag": f'"{file.etag}"',
        "Accept-Ranges": "bytes",
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f'inline; filename="{file.path.rpartition("/")[2]}"',
    }
    if file.lfs:
        headers |= {"X-Linked-ETag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
    asked = None if store.weather().ignore_ranges else request.headers.get("range")
    start, end = byte_range(asked, file.size)
    if start >= file.size > 0:
        return Reply(status=416, headers={**headers, "Content-Range": f"bytes */{file.size}"})
    partial = asked is not None
    if partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
    body = FileBody(path=store.content(file), start=start, length=end - start, corrupt=corrupt)
    return Reply(status=206 if partial else 200, headers=headers, body=body)


def byte_range(header: str | None, size: int) -> tuple[int, int]:
    """Start and end (exclusive) of the one range that a download asks for.

    >>> byte_range("bytes=10-", 100), byte_range("bytes=10-19", 100), byte_range(None, 100)
    ((10, 100), (10, 20), (0, 100))
    """
    if header is None:
        return 0, size
    first, _, last = header.removeprefix("bytes=").partition("-")
    if not first:  # the last so many bytes
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


# The API ----------------------------------------------------------------------------------------
def answer_api(store: HubStore, request: Request, route: re.Match[str], *, page_size: int) -> Reply:
    repo = unquote(route["api_repo"])
    revision, _, path = (route["rest"] or "main").partition("/")
    if route["verb"] == "refs":
        return json_reply(describe_refs(store, repo))
    commit = store.resolve(repo, unquote(revision))
    if route["verb"] == "tree":
        return answer_tree(commit, request, unquote(path), page_size=page_size)
    if route["verb"] == "paths-info":
        wanted = set(_wanted_paths(request))
        return json_reply([describe_file(file) for file in commit.files if file.path in wanted])
    if route["verb"] == "commits":
        return json_reply([describe_commit(one) for one in store.history(repo, commit.sha)])
    return json_reply(describe_model(store, repo, commit, with_blobs="blobs" in request.query))


def _wanted_paths(request: Request) -> list[str]:
    if request.headers.get("content-type", "").startswith("application/json"):
        return list(json.loads(request.body)["paths"])
    return parse_qs(request.body.decode())["paths"]


def describe_refs(store: HubStore, repo: str) -> dict[str, object]:
    def listed(kind: str, refs: Mapping[str, str]) -> list[dict[str, str]]:
        return [
            {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": commit}
            for name, commit in refs.items()
        ]

    return {
        "branches": listed("heads", store.refs(repo, "heads")),
        "tags": listed("tags", store.refs(repo, "tags")),
        "converts": [],
        "pullRequests": [],
    }


def describe_model(store: HubStore, repo: str, commit: Commit, *, with_blobs: bool) -> dict[str, object]:
    siblings = [_sibling(file, with_blobs=with_blobs) for file in commit.files]
    return {
        "_id": commit.sha[:24],
        "id": repo,
        "modelId": repo,
        "author": repo.partition("/")[0],
        "sha": commit.sha,
        "lastModified": PUBLISHED,
        "createdAt": PUBLISHED,
        "private": False,
        "disabled": False,
        "gated": "manual" if store.faults(repo).gated else False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "siblings": siblings,
    }


def _sibling(file: StoredFile, *, with_blobs: bool) -> dict[str, object]:
    if not with_blobs:
        return {"rfilename": file.path}
    known: dict[str, object] = {"rfilename": file.path, "size": file.size, "blobId": file.git_sha1}
    if file.lfs:
        known["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": len(file.pointer)}
    return known


def describe_file(file: StoredFile) -> dict[str, object]:
    known: dict[str, object] = {"type": "file", "oid": file.git_sha1, "size": file.size, "path": file.path}
    if file.lfs:
        known["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": len(file.pointer)}
    return known


def describe_commit(commit: Commit) -> dict[str, object]:
    return {
        "id": commit.sha,
        "title": commit.message,
        "message": "",
        "authors": [{"user": "octavo-tests"}],
        "date": PUBLISHED,
    }


def answer_tree(commit: Commit, request: Request, folder: str, *, page_size: int) -> Reply:
    """One page of a listing, with a `Link` to the next one, as the hub pages large trees."""
    recursive = request.query.get("recursive", "").lower() in ("true", "1")
    entries = list(tree_entries(commit, folder, recursive=recursive))
    if folder and not entries:
        raise Refused(status=404, code="EntryNotFound", message=f"{folder} does not exist")
    start = int(request.query.get("cursor", "0"))
    headers = {"X-Repo-Commit": commit.sha}
    if start + page_size < len(entries):
        query = urlencode({**request.query, "cursor": start + page_size})
        here = f"http://{request.headers.get('host', '')}{urlsplit(request.target).path}"
        headers["Link"] = f'<{here}?{query}>; rel="next"'
    return json_reply(entries[start : start + page_size], headers=headers)


def tree_entries(commit: Commit, folder: str, *, recursive: bool) -> Iterator[dict[str, object]]:
    """Files and folders below `folder`: its own only, or all the way down."""
    prefix = f"{folder}/" if folder else ""
    seen: set[str] = set()
    for file in commit.files:
        if not file.path.startswith(prefix):
            continue
        *parents, _ = file.path.removeprefix(prefix).split("/")
        for depth in range(1, len(parents) + 1 if recursive else min(len(parents), 1) + 1):
            inner = prefix + "/".join(parents[:depth])
            if inner not in seen:
                seen.add(inner)
                yield {"type": "directory", "oid": commit.sha, "size": 0, "path": inner}
        if recursive or not parents:
            yield describe_file(file)


def json_reply(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    body = json.dumps(value).encode()
    return Reply(status=status, headers={"Content-Type": "application/json", **(headers or {})}, body=body)
