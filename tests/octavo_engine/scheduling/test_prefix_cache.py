"""Hashes of prefixes: equal exactly where the whole text and the salt are."""

from __future__ import annotations

from octavo_engine.scheduling.prefix_cache import PrefixHasher


def hashes(tokens: list[int], *, salt: str = "", adapter: str = "", root: bytes = b"r") -> list[bytes]:
    chain: list[bytes] = []
    PrefixHasher(block_size=2, root=root).extend(chain, tokens, salt=salt, adapter=adapter)
    return chain


def test_only_full_blocks_are_named() -> None:
    assert [len(hashes([1] * count)) for count in range(5)] == [0, 0, 1, 1, 2]


def test_hash_of_a_block_depends_on_all_that_came_before() -> None:
    first, second = hashes([1, 2, 3, 4]), hashes([9, 2, 3, 4])
    assert first[0] != second[0] and first[1] != second[1]
    assert hashes([1, 2, 3, 4, 5, 6])[:2] == first


def test_salt_and_root_change_every_hash() -> None:
    plain = hashes([1, 2, 3, 4])
    assert not set(plain) & set(hashes([1, 2, 3, 4], salt="tenant"))
    assert not set(plain) & set(hashes([1, 2, 3, 4], root=b"other process"))


def test_adapter_changes_every_hash_and_no_salt_passes_for_one() -> None:
    tokens = [1, 2, 3, 4]
    adapted = set(hashes(tokens, adapter="1:x"))
    for salt in ("", "1:x", "3:1:x", "0:", "x"):
        assert not adapted & set(hashes(tokens, salt=salt))
    assert not adapted & set(hashes(tokens, adapter="1:", salt="x"))
    assert not adapted & set(hashes(tokens, adapter="2:x"))


def test_extension_in_steps_gives_the_same_chain() -> None:
    chain: list[bytes] = []
    hasher = PrefixHasher(block_size=2, root=b"r")
    for count in range(8):
        hasher.extend(chain, list(range(count)), salt="s")
    assert chain == hashes(list(range(7)), salt="s")


def test_large_token_ids_are_told_apart() -> None:
    assert hashes([1, 1 << 40]) != hashes([1, 1])
