"""A cache entry is whole or absent, and made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.cache import cache_root, cached_folder


def write_entry(folder: Path) -> None:
    (folder / "file").write_text("whole")


def test_cached_folder_builds_once_when_asked_by_many_at_a_time(tmp_path: Path) -> None:
    built: list[Path] = []

    def build(folder: Path) -> None:
        built.append(folder)
        write_entry(folder)

    with ThreadPoolExecutor(4) as pool:
        places = list(pool.map(lambda _: cached_folder(tmp_path / "entry", build), range(4)))

    assert places == [tmp_path / "entry"] * 4
    assert len(built) == 1
    assert (tmp_path / "entry" / "file").read_text() == "whole"


def test_cached_folder_leaves_nothing_when_the_build_fails(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        write_entry(folder)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        cached_folder(tmp_path / "entry", build)

    assert [path.name for path in tmp_path.iterdir()] == [".entry.lock"]


def test_cached_folder_clears_what_a_killed_run_left(tmp_path: Path) -> None:
    (tmp_path / ".entry.part-killed").mkdir()

    cached_folder(tmp_path / "entry", write_entry)

    assert sorted(path.name for path in tmp_path.iterdir()) == [".entry.lock", "entry"]


def test_cache_root_follows_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "elsewhere"))

    assert cache_root() == tmp_path / "elsewhere"
    assert cache_root().is_dir()
