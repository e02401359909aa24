"""The way to a host over SSH."""

from __future__ import annotations

from pathlib import Path

import pytest
from paramiko import ECDSAKey

from kestrelctl.errors import KestrelError
from kestrelctl.fleet.host import Host
from kestrelctl.fleet.ssh import connect, connection_to


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("known_hosts", b"w1 ssh-rsa AAAAB\n"),
        ("known_hosts", b"h\xe9st ssh-rsa AAAA\n"),
        ("config", b"Host h\xe9st\n"),
        ("config", b'Host "w1\n'),
        ("config", b"Host *\nProxyJump gate:x\n"),
    ],
)
def test_a_file_of_ssh_that_cannot_be_read_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes
) -> None:
    """It is the outcome of the host, and no mistake of ours."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / name).write_bytes(data)
    with pytest.raises(KestrelError, match="what ssh knows of w1 cannot be read") as caught:
        connect(Host("w1", "192.0.2.1"))
    assert caught.value.cause


@pytest.mark.parametrize(
    ("told", "file"),
    [("{0}/known", "known"), ("{0}/other {0}/known", "known"), ('"{0}/a host"', "a host")],
)
def test_hosts_are_known_from_the_files_that_ssh_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, file: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(f"UserKnownHostsFile {told.format(tmp_path)}\n")
    key = ECDSAKey.generate()
    (tmp_path / file).write_text(f"192.0.2.1 {key.get_name()} {key.get_base64()}\n")
    known = connection_to(Host("w1", "192.0.2.1")).client._system_host_keys
    assert known.check("192.0.2.1", key)
