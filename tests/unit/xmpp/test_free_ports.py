"""Ports for the servers of a pool."""

from __future__ import annotations

import socket

import pytest

from kestrelctl.xmpp.prosody import LOOPBACK, free_ports


def test_a_port_is_given_once_and_never_where_something_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that starts later would not get its port, and say so in its log alone."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        taken = listening.getsockname()[1]
        chance = iter([taken, 19001, 19001, taken, 19002, 19002, 19001, 19003])
        monkeypatch.setattr("secrets.choice", lambda _: next(chance))
        assert free_ports(1) == [19001]
        assert free_ports(2) == [19002, 19003]
