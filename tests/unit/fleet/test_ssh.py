"""The way to a host over SSH."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from paramiko import ECDSAKey, SSHClient

from kestrelctl.errors import KestrelError, Unreachable
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
        ("config", b"Host *\nConnectTimeout soon\n"),
        ("config", b"Host *\nPort ssh\n"),
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


@pytest.mark.parametrize(
    ("jump", "hop"),
    [
        ("gate", ("", "gate", 22)),
        ("eve@gate:2222", ("eve", "gate", 2222)),
        ("ssh://eve@gate:2222", ("eve", "gate", 2222)),
        ("2001:db8::1", ("", "2001:db8::1", 22)),
        ("eve@[2001:db8::1]", ("eve", "2001:db8::1", 22)),
        ("[2001:db8::1]:2222", ("", "2001:db8::1", 2222)),
    ],
)
def test_a_host_to_jump_over_is_named_as_for_ssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: str, hop: tuple[str, str, int]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    gateway = connection_to(Host("w1", "192.0.2.1", ssh_config=(f"ProxyJump {jump}",))).gateway
    user, address, port = hop
    assert (gateway.host, gateway.port) == (address, port)
    assert not user or gateway.user == user


@pytest.mark.parametrize(
    ("told", "seconds"), [("3", 3), ("1m", 60), ("none", 10), ("0", 10), (None, 10)]
)
def test_a_host_that_does_not_answer_is_waited_for_as_long_as_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None, seconds: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    if told is not None:
        (tmp_path / ".ssh/config").write_text(f"ConnectTimeout {told}\n")
    waited: list[float] = []

    def connect_in_vain(client: SSHClient, **given: Any) -> None:
        waited.append(given["timeout"])
        raise TimeoutError("timed out")

    monkeypatch.setattr(SSHClient, "connect", connect_in_vain)
    with pytest.raises(Unreachable) as caught:
        connect(Host("w1", "192.0.2.1"))
    assert waited == [seconds]
    assert caught.value.cause == f"192.0.2.1 port 22 did not answer in {seconds} s"
