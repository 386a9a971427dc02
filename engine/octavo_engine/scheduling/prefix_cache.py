"""Names of cached prefixes: a chain of hashes over full blocks of tokens.

Each hash covers all tokens from the start of the sequence to the end of its block, so that equal
hashes mean equal keys and values. The chain starts from a root that is random per process (nobody
can prepare a collision) and from the request's identity: tenants with different salts never share,
nor do texts that different adapters compute.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as TokenIds
from hashlib import blake2b
from typing import Final

HASH_BYTES: Final = 16
"""128 bits: a collision among a billion blocks has a chance of about 1e-21."""


class PrefixHasher:
    """Computes the chain of hashes of one engine."""

    __slots__ = ("_block_size", "_root")

    def __init__(self, *, block_size: int, root: bytes) -> None:
        self._block_size = block_size
        self._root = root

    def extend(self, hashes: list[bytes], token_ids: TokenIds[int], *, salt: str, adapter: str = "") -> None:
        """Append the hashes of those full blocks of `token_ids` that `hashes` does not name yet."""
        size = self._block_size
        for index in range(len(hashes), len(token_ids) // size):
            parent = hashes[-1] if hashes else self._start(salt, adapter)
            content = array("q", token_ids[index * size : (index + 1) * size]).tobytes()
            hashes.append(blake2b(parent + content, digest_size=HASH_BYTES).digest())

    def _start(self, salt: str, adapter: str) -> bytes:
        identity = f"{len(adapter)}:{adapter}{salt}"  # the length keeps one from passing for the other
        return blake2b(identity.encode(), key=self._root, digest_size=HASH_BYTES).digest()
