"""How pods are asked over HTTP. A pod may run anybody's image: what it sends is not kept without end."""

from __future__ import annotations

import httpx

from octavo_operator.decide.observed import PodView


def url_of(pod: PodView, port: int, path: str) -> str:
    host = f"[{pod.address}]" if ":" in pod.address else pod.address
    return f"http://{host}:{port}{path}"


async def read_answer(response: httpx.Response, most_bytes: int) -> str:
    """The text of a streamed answer. Raises ValueError for a longer one."""
    data = bytearray()
    async for chunk in response.aiter_bytes():
        data += chunk
        if len(data) > most_bytes:
            raise ValueError(f"the answer is longer than {most_bytes} bytes")
    return data.decode(errors="replace")
