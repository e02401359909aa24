"""The way to a host with Fabric (https://docs.fabfile.org): over SSH, or none for this machine."""

from __future__ import annotations

import io
import logging
import re
import socket
import time
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from typing import Any

from fabric import Config, Connection
from fabric.runners import Remote
from invoke.context import Context
from invoke.exceptions import CommandTimedOut, ThreadException
from invoke.runners import Local, Runner
from paramiko import RejectPolicy, SSHClient, SSHConfig
from paramiko.hostkeys import InvalidHostKey
from paramiko.ssh_exception import (
    AuthenticationException,
    BadHostKeyException,
    PasswordRequiredException,
    SSHException,
)

from kestrelctl.errors import KestrelError, TimedOut, Unreachable, Untrusted, UsageError
from kestrelctl.fleet.host import Host
from kestrelctl.fleet.shell import (
    KILL_AFTER_SECONDS,
    Lines,
    Ran,
    Shell,
    timed_out,
    whole_command,
)
from kestrelctl.grammar.quantities import parse_duration

CONNECT_SECONDS = 10
_KEEPALIVE_SECONDS = 15
# Our errors say what goes wrong; Paramiko's log would say it a second time.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_USER_CONFIG = ("~/.ssh/config", "/etc/ssh/ssh_config")
#: `[2001:db8::1]:2222`, `gate:2222` or `2001:db8::1`, as ProxyJump takes them (ssh_config(5)).
_PLACE = re.compile(r"\[(.+)\](?::(\d{1,5}))?|([^:]+)(?::(\d{1,5}))?|(.*:.*:.*)", re.ASCII)
_KNOWN_HOSTS = {
    "userknownhostsfile": "~/.ssh/known_hosts ~/.ssh/known_hosts2",
    "globalknownhostsfile": "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",
}


class _Quiet:
    """Makes a runner drop output that was passed on, and look for no prompts in it."""

    def respond(self, buffer_: list[str]) -> None:
        """Drops output that was passed on; called after each piece, with all pieces so far."""
        if self.opts["out_stream"] is not None:  # type: ignore[attr-defined]
            buffer_.clear()


class _Remote(_Quiet, Remote):
    """A command over SSH."""


class _Local(_Quiet, Local):
    """A command on this machine; killed as one over SSH is: its life-line ends."""

    def kill(self) -> None:
        """Ends the standard input of the command."""
        assert self.process.stdin is not None
        self.process.stdin.close()


class FabricShell:
    """Commands on one host, through the runners of Fabric and Invoke."""

    def __init__(self, host: Host, connection: Connection | None) -> None:
        """Args:
        connection: an open one; None for this machine.
        """
        self.host = host
        self._connection = connection
        self._runners: set[Runner] = set()
        self._closed = False

    def run(
        self,
        command: str,
        *,
        as_root: bool = True,
        timeout_seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> Ran:
        """Runs a command; see `Shell.run`."""
        lines = Lines(on_line) if on_line is not None else None
        patience = None if timeout_seconds is None else timeout_seconds + 2 * KILL_AFTER_SECONDS
        runner = self._runner()
        self._runners.add(runner)
        started = time.monotonic()
        try:
            result = runner.run(
                whole_command(command, as_root=as_root, timeout_seconds=timeout_seconds),
                hide=True if lines is None else "stderr", out_stream=lines, in_stream=False,
                warn=True, encoding="utf-8", timeout=patience,
            )  # fmt: skip
        except (OSError, EOFError, SSHException, ThreadException) as error:
            raise Unreachable(
                f"the connection to {self.host} broke", cause=str(error) or type(error).__name__
            ) from None
        except CommandTimedOut:
            raise self._too_slow(timeout_seconds) from None
        finally:
            self._runners.discard(runner)
        seconds = time.monotonic() - started
        assert result is not None  # it is None only for a runner that was disowned
        if lines is not None:
            lines.finish()
        if result.exited < 0 and self._connection is not None:
            raise Unreachable(f"the connection to {self.host} broke")
        if timed_out(result.exited, seconds, timeout_seconds):
            raise self._too_slow(timeout_seconds)
        return Ran(result.exited, result.stdout, result.stderr, seconds)

    def close(self) -> None:
        """Ends the connection and what runs over it."""
        self._closed = True
        for runner in list(self._runners):
            runner.kill()
        if self._connection is not None:
            for connection in _hops(self._connection):
                connection.close()

    def _runner(self) -> Runner:
        if self._closed:
            raise Unreachable(f"the connection to {self.host} is closed")
        if self._connection is None:
            return _Local(Context())
        return _Remote(self._connection, inline_env=True)

    def _too_slow(self, timeout_seconds: float | None) -> TimedOut:
        return TimedOut(f"{self.host} took longer than {timeout_seconds:g} s")


def connect(host: Host) -> Shell:
    """Opens the way to a host.

    Raises:
        Unreachable: there is none, or the host is not the one it should be.
        KestrelError: the user's files for SSH cannot be read.
    """
    if host.local:
        return FabricShell(host, None)
    try:
        connection = connection_to(host)
    except (OSError, ValueError, SSHException, InvalidHostKey) as error:
        raise KestrelError(
            f"what ssh knows of {host} cannot be read",
            cause=str(error)[:200],
            hint="mend that line of known_hosts or of the configuration of ssh",
        ) from None
    try:
        connection.open()
    except (OSError, EOFError, SSHException, ValueError) as error:
        connection.close()
        raise _unreachable(host, connection, error) from None
    connection.transport.set_keepalive(_KEEPALIVE_SECONDS)
    return FabricShell(host, connection)


def connection_to(host: Host) -> Connection:
    """A connection, not open yet, that trusts only hosts whose keys are known."""
    ssh_config = SSHConfig()
    ssh_config.parse(io.StringIO("\n".join(["Host *", *host.ssh_config])))
    for name in _USER_CONFIG:
        if (file := Path(name).expanduser()).is_file():
            ssh_config.parse(io.StringIO(file.read_text()))
    config = Config(lazy=True, ssh_config=ssh_config)
    gateway: Any = None
    jumps = ssh_config.lookup(host.address).get("proxyjump", "none")
    for jump in jumps.split(",") if jumps.lower() != "none" else ():
        user, address, port = _jump(jump.strip())
        gateway = _trusting_known(
            Connection(
                address, user=user, port=port, config=config, gateway=gateway or False,
                connect_timeout=_connect_seconds(ssh_config, address),
            )
        )  # fmt: skip
    return _trusting_known(
        Connection(
            host.address, user=host.user or None, port=host.port, config=config, gateway=gateway,
            connect_timeout=_connect_seconds(ssh_config, host.address),
            connect_kwargs={
                "key_filename": list(host.key_files),
                "banner_timeout": CONNECT_SECONDS,
                "auth_timeout": CONNECT_SECONDS,
                "channel_timeout": CONNECT_SECONDS,
            },
        )
    )  # fmt: skip


def _jump(text: str) -> tuple[str | None, str, int | None]:
    """The user, the address and the port of `[user@]host[:port]` of ProxyJump (ssh_config(5)).

    Fabric itself takes the brackets and the port of `[2001:db8::1]:2222` for a part of the address.

    Raises:
        ValueError: it is of another form.
    """
    user, _, place = text.removeprefix("ssh://").rpartition("@")
    found = _PLACE.fullmatch(place)
    if found is None:
        raise ValueError(f"{text!r} of ProxyJump is not of the form [USER@]HOST[:PORT]")
    port = found[2] or found[4]
    return user or None, found[1] or found[3] or found[5], int(port) if port else None


def _connect_seconds(ssh_config: SSHConfig, address: str) -> int:
    """The longest that it may take to connect: ConnectTimeout, in any form that ssh takes.

    Raises:
        ValueError: it is no time.
    """
    told = ssh_config.lookup(address).get("connecttimeout", "none")
    if told.lower() in ("none", "0"):
        return CONNECT_SECONDS
    try:
        return ceil(parse_duration(told))
    except UsageError:
        raise ValueError(f"{told!r} of ConnectTimeout is no time") from None


def _trusting_known(connection: Connection) -> Connection:
    client: SSHClient = connection.client
    client.set_missing_host_key_policy(RejectPolicy())
    for option, default in _KNOWN_HOSTS.items():
        told = str(connection.ssh_config.get(option, default))
        # Of one name, Paramiko has taken the quotes away already.
        for name in (told, *told.split()):
            file = Path(name.strip('"')).expanduser()
            if file.is_file():
                client.load_system_host_keys(str(file))
    return connection


def _hops(connection: Connection) -> Iterator[Connection]:
    hop: Any = connection
    while isinstance(hop, Connection):
        yield hop
        hop = hop.gateway


def _unreachable(host: Host, connection: Connection, error: Exception) -> KestrelError:
    hop = next((h for h in reversed(list(_hops(connection))) if not h.is_connected), connection)
    where = f"{hop.user}@{hop.host}" + (f" -p {hop.port}" if hop.port != 22 else "")
    message, hint = f"{host} cannot be reached", None
    cause = str(error).removeprefix("[Errno None] ")
    if isinstance(error, BadHostKeyException):
        return Untrusted(
            f"the SSH key of {host} has changed",
            cause=f"{hop.host} is not the host that it was, or another one answers",
            hint=f"if that is right: ssh-keygen -R {hop.host}, then ssh {where}",
        )
    if "not found in known_hosts" in cause:
        return Untrusted(
            f"the SSH key of {host} is not known",
            cause=f"{hop.host} is in no known_hosts file, and keys are never added unseen, "
            "whatever StrictHostKeyChecking says",
            hint=f"ssh {where} once, or ssh-keyscan -p {hop.port} {hop.host} and check it",
        )
    if isinstance(error, PasswordRequiredException):
        message = f"{host} does not let us in"
        hint = "ssh-add the key: passphrases are not asked for"
    elif isinstance(error, AuthenticationException):
        message = f"{host} does not let us in"
        hint = f"try ssh {where}"
    elif isinstance(error, socket.gaierror):
        cause = f"the name {hop.host} has no address"
    elif isinstance(error, TimeoutError):
        patience = "" if error.errno else f" in {hop.connect_timeout} s"  # or the kernel gave up
        cause = f"{hop.host} port {hop.port} did not answer{patience}"
    elif isinstance(error, SSHException):
        cause = f"no SSH with {hop.host} port {hop.port}: {cause}"
    return Unreachable(message, cause=cause or type(error).__name__, hint=hint)
