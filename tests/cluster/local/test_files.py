"""Records, locks, image stores, images and certificates: what a cluster writes."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.cluster.local.certificates import issue_certificate, make_authority
from tests.cluster.local.image_store import take_image_store
from tests.cluster.local.paths import ClusterPaths
from tests.cluster.local.program_image import write_program_image
from tests.cluster.local.record import ClusterRecord, Owner, cluster_lock, read_record, write_record


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(ClusterRecord(mode="light", api_port=1), id="begun"),
        pytest.param(
            ClusterRecord(
                mode="full",
                api_port=2,
                ready=True,
                owner=Owner(pid=3, start_ticks=4),
                image_store=Path("/store"),
                processes=("etcd",),
            ),
            id="ready",
        ),
    ],
)
def test_record_is_read_as_it_was_written(tmp_path: Path, record: ClusterRecord) -> None:
    paths = ClusterPaths(root=tmp_path)

    write_record(paths, record)

    assert read_record(paths) == record


def test_record_is_none_when_no_cluster_has_begun(tmp_path: Path) -> None:
    assert read_record(ClusterPaths(root=tmp_path)) is None


@pytest.mark.parametrize("text", ["{}", '{"mode": "light"}', "{", "[]", '{"owner": {"x": 1}}'])
def test_record_is_none_when_another_version_wrote_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)

    assert read_record(ClusterPaths(root=tmp_path)) is None


def test_lock_goes_with_the_cluster_and_stays_while_there_is_one(tmp_path: Path) -> None:
    paths = ClusterPaths(root=tmp_path / "clusters" / "one")
    with cluster_lock(paths):
        paths.root.mkdir()
    assert paths.lock.exists()

    with cluster_lock(paths):
        paths.root.rmdir()

    assert not paths.lock.exists()


def test_image_store_is_free_again_only_when_the_last_heir_of_its_lock_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    with take_image_store() as first:
        heir = subprocess.Popen(["sleep", "60"], pass_fds=(first.lock,))
    with take_image_store() as second:
        assert second.folder != first.folder

    heir.kill()
    heir.wait()

    with take_image_store() as third:
        assert third.folder == first.folder


def test_image_store_with_the_most_layers_is_taken_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    for store, layers in (("1", 1), ("2", 3), ("3", 2)):
        for layer in range(layers):
            snapshots = tmp_path / "image-stores" / store / "io.containerd.snapshotter.v1.overlayfs/snapshots"
            (snapshots / str(layer)).mkdir(parents=True)

    with take_image_store() as first, take_image_store() as second:
        assert [first.folder.name, second.folder.name] == ["2", "3"]


def test_program_image_is_the_same_to_the_byte_when_made_twice(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/true\n")
    archives = [tmp_path / "one.tar", tmp_path / "two.tar"]
    for archive in archives:
        write_program_image(archive, image="localhost/x:1", program=program)
        os.utime(program, (0, 0))

    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as tar:
        assert tar.getnames() == ["config.json", "layer.tar", "manifest.json"]


def test_certificate_is_accepted_by_its_authority_for_its_host_and_no_other(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "ca")
    pair = issue_certificate(authority, "server", user="someone", groups=("some",), hosts=["10.0.0.1"])

    def verify(address: str) -> int:
        command = ["openssl", "verify", "-CAfile", str(authority.pair.certificate), "-verify_ip", address]
        return subprocess.run([*command, str(pair.certificate)], capture_output=True, check=False).returncode

    assert verify("10.0.0.1") == 0
    assert verify("10.0.0.2") != 0
    assert pair.key.stat().st_mode & 0o077 == 0
