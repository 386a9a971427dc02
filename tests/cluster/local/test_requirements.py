"""What the tool says where the machine lacks something."""

import os
from pathlib import Path

import pytest

from tests.cluster.local import binaries, packages
from tests.cluster.local.binaries import FULL_PROGRAMS, LIGHT_PROGRAMS, find_program, require_programs
from tests.cluster.local.failure import ClusterError


def test_full_cluster_is_refused_with_a_way_out_when_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(ClusterError, match=r"run it as root, or start a light cluster \(`up --light`\)"):
        packages.require_root_and_packages()


def test_full_cluster_names_packages_and_command_when_programs_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(packages, "PACKAGE_OF", {"no-such-program": "socat", "sh": "dash"})

    with pytest.raises(ClusterError, match=r"missing on this machine: socat\. .*prepare` installs"):
        packages.require_root_and_packages()


def test_build_names_go_when_it_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)

    with pytest.raises(ClusterError, match=r"`go` is not on PATH: install Go 1\.24"):
        require_programs(LIGHT_PROGRAMS)


def test_programs_come_from_kubebuilder_assets_when_it_has_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "etcd").touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "empty"))

    found = {program.name: find_program(program) for program in LIGHT_PROGRAMS}

    assert found.pop("etcd") == assets / "etcd"
    assert set(found.values()) == {None}


def test_cached_programs_are_kept_apart_when_a_pin_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_bytes((binaries.MODULE / name).read_bytes())
    before = [binaries.cached_path(program) for program in FULL_PROGRAMS]
    monkeypatch.setattr(binaries, "MODULE", tmp_path)
    assert binaries.cached_path(FULL_PROGRAMS[0]) == before[0]

    (tmp_path / "go.sum").write_text("another checksum\n")

    assert binaries.cached_path(FULL_PROGRAMS[0]) != before[0]
