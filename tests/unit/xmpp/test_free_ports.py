"""Ports for the servers of a pool."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from kestrelctl.xmpp.prosody import LOOPBACK, free_ports


def test_a_port_is_given_once_and_never_where_something_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server((LOOPBACK, 0)) as listening:
        taken = listening.getsockname()[1]
        chance = iter([taken, 19001, 19001, taken, 19002, 19002, 19001, 19003])
        monkeypatch.setattr("secrets.choice", lambda _: next(chance))
        assert free_ports(1) == [19001]
        assert free_ports(2) == [19002, 19003]


def test_a_port_stays_with_the_process_that_found_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two pools that start at once one would find its port in use when its server begins."""
    chance = iter([19004, 19005])
    monkeypatch.setattr("secrets.choice", lambda _: next(chance))
    assert free_ports(1) == [19004]
    another_process = (
        "import secrets\n"
        "from kestrelctl.xmpp.prosody import free_ports\n"
        "chance = iter([19004, 19006])\n"
        "secrets.choice = lambda _: next(chance)\n"
        "print(*free_ports(1))"
    )
    told = subprocess.run([sys.executable, "-c", another_process], capture_output=True, check=True)
    assert told.stdout.split() == [b"19006"]
    for _ in range(2):  # the server may be started again
        with socket.create_server((LOOPBACK, 19004)):
            pass


def test_a_process_that_makes_many_pools_holds_few_ports() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        free_ports(20)
    assert len(os.listdir("/proc/self/fd")) - before < 300
