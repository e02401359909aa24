"""Who listens on a service's ports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from types import ModuleType

import pytest

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1466 00000000:0000 0A 00000000:00000000 00:00000000 00000000   106        0 4711 1 0
   1: 0100007F:14E3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0
   2: 0100007F:1466 0100007F:C001 01 00000000:00000000 00:00000000 00000000   106        0 4713 1 0
"""


@pytest.fixture(scope="module")
def module(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("xmpp_server/library/free_ports")


def test_listening_sockets_are_told_from_connections(module: ModuleType) -> None:
    assert list(module.listeners(TABLE)) == [
        module.Listener(5222, 4711, 106),
        module.Listener(5347, 4712, 0),
    ]


def test_the_service_may_have_its_ports(module: ModuleType) -> None:
    found = list(module.listeners(TABLE))
    assert module.foreign(found, {4711: 50, 4712: 50}, own=50, own_user=106) == []


def test_another_program_is_found(module: ModuleType) -> None:
    found = list(module.listeners(TABLE))
    assert module.foreign(found, {4711: 50, 4712: 60}, own=50, own_user=106) == [(5347, 60, 0)]


def test_where_nobody_can_look_the_user_decides(module: ModuleType) -> None:
    found = list(module.listeners(TABLE))
    assert module.foreign(found, {}, own=50, own_user=106) == [(5347, None, 0)]


def test_what_a_service_has_started_is_its_own(module: ModuleType) -> None:
    own = os.getpid()
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=PIPE) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        assert module.belongs_to(grandchild, own)
        assert module.belongs_to(grandchild, shell.pid)
        assert not module.belongs_to(own, shell.pid)
        assert not module.belongs_to(grandchild, 0), "a service that does not run"
        os.kill(grandchild, signal.SIGKILL)


def test_a_service_that_does_not_run_owns_nothing(module: ModuleType) -> None:
    found = list(module.listeners(TABLE))[:1]
    assert module.foreign(found, {}, own=0, own_user=None) == [(5222, None, 106)]


def test_a_real_listener_is_found_and_named(module: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        table = Path("/proc/net/tcp").read_text()
        (found,) = [entry for entry in module.listeners(table) if entry.port == port]
        assert module.holders({found.inode}) == {found.inode: os.getpid()}
        said = module.complaint([(port, os.getpid(), found.user)])
    assert f"port {port} is taken by '" in said
    assert f"(process {os.getpid()})" in said
