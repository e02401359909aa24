"""A private XMPP server for a pool on one machine: Prosody, on loopback, for this user alone.

Workers and users log in to two hosts of their own; the pool itself is a component (XEP-0114) at
`domain`. A message to a worker that cannot be delivered comes back as an error at once, and so does
what programs say to a user; the rest waits for him. There is no TLS, because nothing leaves the
machine; what protects the pool is that only the owner of the directory can read the keys in it.
Accounts exchange files by HTTP with a component of the server (XEP-0363), on loopback, too.
Other servers reach the component alone, if they are named or of its flock, over TLS and with
certificates.

Options: https://prosody.im/doc/configure (0.12 and later).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from kestrelctl.core.model.config import Config
from kestrelctl.errors import MissingTool, Unreachable
from kestrelctl.protocol.upload_slots import share_of
from kestrelctl.xmpp.federation import Federation, FlockMembership

LOOPBACK = "127.0.0.1"
#: The domain of a pool that nobody reaches from elsewhere.
LOCAL_DOMAIN = "kestrel.localhost"
MAX_STANZA_BYTES = 1024 * 1024
#: How many messages are kept for a user who is away.
MOST_KEPT_MESSAGES = 100
#: The largest upload to the file share. A file is sent in pieces that are smaller.
LARGEST_UPLOAD_BYTES = 1024 * 1024 * 1024
FILES_KEPT_SECONDS = round(Config().files_kept_seconds)
#: The part of the disk that the file share may fill.
_MOST_OF_DISK = 0.5
#: More than ever comes: our storage counts, because Prosody's count knows no place given back.
_NO_QUOTA_BYTES = 2**53
#: A longer body goes to the disk as it comes, and only with a place for it.
_MOST_HELD_BODY_BYTES = 64 * 1024
#: More than `mod_kestrel_share` reads at once.
_HTTP_BUFFER_BYTES = 4 * 1024 * 1024

#: Where `free_ports` looks: below Linux's ip_local_port_range, and that of other systems.
_PORTS = range(20000, 32000)
#: Descriptors of sockets at what it found last: nobody else finds that while a server starts.
_held: deque[int] = deque()
_MOST_HELD = 256
_PROBE_INTERVAL_SECONDS = 0.02
_DIRECTORIES_BESIDE_PATH = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/bin")

#: Our modules for Prosody; the files there say what they do.
_MODULES = Path(__file__).parent / "prosody_modules"

_CONFIGURATION = """\
-- Written by kestrelctl at each start; changes are lost.
run_as_root = true
umask = "077"
gc = {{ threshold = 200 }} -- collect when memory doubled; the default, 105, costs half of the rate
data_path = {data}
pidfile = {pidfile}
certificates = {certificates}
log = {{ info = {log} }}

plugin_paths = {{ {modules} }}
modules_enabled = {{ "saslauth", "ping", "kestrel_guard"{metrics_module} }}
modules_disabled = {{ "s2s", "s2s_auth_certs", "offline" }}

interfaces = {{ "{loopback}" }}
http_interfaces = {{ "{loopback}" }}
http_ports = {{ {http_port} }}
https_ports = {{ }}
kestrel_share_ports = {{ }}
http_max_content_size = {most_held_body_bytes}
http_max_buffer_size = {http_buffer_bytes}
c2s_ports = {{ {client_port} }}
c2s_direct_tls_ports = {{ }}
component_interfaces = {{ "{loopback}" }}
component_ports = {{ {component_port} }}
network_backend = "epoll"
-- A large stanza is written in pieces. The last would wait 40 ms for the answer to those before.
network_settings = {{ tcp_backlog = 1024; nagle = false }}
c2s_stanza_size_limit = {max_stanza_bytes}
component_stanza_size_limit = {max_stanza_bytes}

kestrel_guard_worker_hosts = {{ {workers_domain} }}
storage_archive_item_limit = {most_kept_messages}

authentication = "internal_plain"
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
{metrics}{streams}
VirtualHost {workers_domain}
    modules_enabled = {{ "admin_adhoc" }} -- the manager makes and deletes workers' accounts
    admins = {{ {pool_address} }}
VirtualHost {users_domain}
    modules_enabled = {{ "roster", "disco", "offline" }}
    disco_items = {{ {{ {domain}, "Kestrel pool" }} }}
Component {domain}
    modules_enabled = {{ "kestrel_guard"{stream_modules} }}
    component_secret = {secret}
{certificate}Component {share_domain} "http_file_share"
    modules_enabled = {{ "kestrel_share" }}
    http_host = "{loopback}"
    http_file_share_access = {{ {workers_domain}, {users_domain}, {pool_address} }}
    http_file_share_size_limit = {largest_upload_bytes}
    http_file_share_expires_after = {files_kept_seconds}
    http_file_share_daily_quota = {no_quota_bytes}
    kestrel_slots_bytes_of_all = {most_stored_bytes}
    storage = {{ uploads = "kestrel_slots", upload_stats = "kestrel_slots" }}
"""

#: Statistics are counted at each scrape; Prosody's default is once a minute.
_METRICS = """
statistics = "internal"
statistics_interval = "manual"
"""

#: The same as in the role `xmpp_server`.
_STREAMS = """
kestrel_streams_federated_domains = {domains}
{flock}s2s_ports = {{ {port} }}
s2s_interfaces = {interfaces}
s2s_secure_auth = true
s2s_require_encryption = true
s2s_stanza_size_limit = {max_stanza_bytes}
"""
_STREAM_MODULES = ', "tls", "s2s", "s2s_auth_certs", "kestrel_streams"'
_FLOCK = """\
kestrel_streams_flock_authorities = {authorities}
kestrel_streams_flock_pins = {pins}
kestrel_streams_address_directories = {address_directories}
"""
#: The certificate of the component alone: clients on loopback are offered no TLS.
_CERTIFICATE = """\
    ssl = {{ certificate = {certificate}; key = {key}; protocol = "tlsv1_2+" }}
"""


def find_prosody() -> Path:
    """Finds the Prosody program, also where a user's PATH does not look.

    Do not run it to ask for its version: any option starts a server.

    Raises:
        MissingTool: it is not installed.
    """
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_DIRECTORIES_BESIDE_PATH))
    found = shutil.which("prosody", path=path)
    if found is None:
        raise MissingTool(
            "Prosody, the XMPP server of a local pool, is not installed",
            hint="as root: apt-get install prosody && systemctl disable --now prosody, because "
            "pools run it themselves (./kestrel up of a checkout does both)",
        )
    return Path(found)


@dataclass(frozen=True, slots=True)
class PrivateServer:
    """A private Prosody: where it keeps its files, what it listens on, and who may connect.

    Attributes:
        directory: its own, readable by its owner alone: configuration, log, accounts.
        domain: the pool's; the component that logs in with `secret` answers for it.
        client_port: on loopback, for accounts (XMPP client to server, SASL PLAIN).
        component_port: on loopback, for the component.
        http_port: on loopback, for files, and for Prometheus.
        metrics: whether the server shows Prometheus anything.
        federation: other servers that reach the pool; None for none.
    """

    directory: Path
    domain: str
    client_port: int
    component_port: int
    secret: str = field(repr=False)
    http_port: int = 0
    metrics: bool = False
    federation: Federation | None = None

    @classmethod
    def create(
        cls,
        directory: Path,
        domain: str = LOCAL_DOMAIN,
        *,
        metrics: bool = False,
        federation: Federation | None = None,
    ) -> PrivateServer:
        """Writes the configuration of a server that is not started yet; accounts there stay.

        Ports and secret are new each time.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        for name in ("certificates", "data"):  # Prosody needs the first, which stays empty
            (directory / name).mkdir(mode=0o700, exist_ok=True)
        client_port, component_port, http_port = free_ports(3)
        server = cls(
            directory=directory.resolve(),
            domain=domain,
            client_port=client_port,
            component_port=component_port,
            secret=secrets.token_urlsafe(32),
            http_port=http_port,
            metrics=metrics,
            federation=federation,
        )
        _write_private(server._configuration_file, server._configuration())
        return server

    @property
    def workers_domain(self) -> str:
        """The host of the workers' accounts."""
        return f"workers.{self.domain}"

    @property
    def users_domain(self) -> str:
        """The host of the users' accounts."""
        return f"users.{self.domain}"

    @property
    def log_file(self) -> Path:
        """The log of the server; it is not rotated."""
        return self.directory / "prosody.log"

    @property
    def _configuration_file(self) -> Path:
        return self.directory / "prosody.cfg.lua"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def command(self) -> list[str]:
        """Returns the command that runs the server in the foreground until SIGTERM.

        A session takes a file descriptor, so the command first allows as many as the machine does.
        All output goes to the log. The shell is replaced: the started process is the server itself.

        Raises:
            MissingTool: Prosody is not installed.
        """
        script = 'umask 077; ulimit -n "$(ulimit -Hn)" 2>/dev/null; exec "$@" >>"$0" 2>&1'
        server = [str(find_prosody()), "--config", str(self._configuration_file), "-F"]
        return ["sh", "-c", script, str(self.log_file), *server]

    def add_account(self, jid: str) -> str:
        """Creates an account, or gives it a new password; the server may be running.

        Args:
            jid: `name@host`, lower case, at `workers_domain` or `users_domain`.

        Returns:
            The password.
        """
        name, _, host = jid.partition("@")
        accounts = self._data / _as_file_name(host) / "accounts"
        accounts.mkdir(mode=0o700, parents=True, exist_ok=True)
        password = secrets.token_urlsafe(24)
        _write_private(
            accounts / f"{_as_file_name(name)}.dat",
            f'return {{\n\t["password"] = {_lua_string(password)};\n}};\n',
        )
        return password

    async def wait_ready(self, timeout_seconds: float = 10.0) -> None:
        """Waits until clients and the component can log in.

        Raises:
            Unreachable: they could not within the time.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                for port, namespace, host in (
                    (self.client_port, "jabber:client", self.workers_domain),
                    (self.client_port, "jabber:client", self.users_domain),
                    (self.component_port, "jabber:component:accept", self.domain),
                ):
                    await _until_it_answers(port, namespace, host)
        except TimeoutError:
            raise Unreachable(
                f"the private XMPP server did not answer within {timeout_seconds:g} s",
                hint=f"its log: {self.log_file}",
            ) from None

    def _configuration(self) -> str:
        return _CONFIGURATION.format(
            data=_lua_string(str(self._data)),
            certificates=_lua_string(str(self.directory / "certificates")),
            modules=_lua_string(str(_MODULES)),
            pidfile=_lua_string(str(self.directory / "prosody.pid")),
            log=_lua_string(str(self.log_file)),
            loopback=LOOPBACK,
            client_port=self.client_port,
            component_port=self.component_port,
            max_stanza_bytes=MAX_STANZA_BYTES,
            most_kept_messages=MOST_KEPT_MESSAGES,
            workers_domain=_lua_string(self.workers_domain),
            users_domain=_lua_string(self.users_domain),
            domain=_lua_string(self.domain),
            pool_address=_lua_string(f"pool@{self.domain}"),
            secret=_lua_string(self.secret),
            http_port=self.http_port,
            most_held_body_bytes=_MOST_HELD_BODY_BYTES,
            http_buffer_bytes=_HTTP_BUFFER_BYTES,
            share_domain=_lua_string(share_of(self.domain)),
            largest_upload_bytes=LARGEST_UPLOAD_BYTES,
            files_kept_seconds=FILES_KEPT_SECONDS,
            no_quota_bytes=_NO_QUOTA_BYTES,
            most_stored_bytes=int(shutil.disk_usage(self.directory).total * _MOST_OF_DISK),
            metrics_module=', "http_openmetrics"' if self.metrics else "",
            metrics=_METRICS if self.metrics else "",
            **_of_other_servers(self.federation),
        )


def _of_other_servers(federation: Federation | None) -> dict[str, str]:
    """The parts of the configuration that let other servers in."""
    if federation is None:
        return {"streams": "", "stream_modules": "", "certificate": ""}
    return {
        "streams": _STREAMS.format(
            domains=_lua_list(federation.domains),
            flock=_of_flock(federation.flock),
            port=federation.port,
            interfaces=_lua_list(federation.interfaces),
            max_stanza_bytes=MAX_STANZA_BYTES,
        ),
        "stream_modules": _STREAM_MODULES,
        "certificate": _CERTIFICATE.format(
            certificate=_lua_string(federation.certificate), key=_lua_string(federation.key)
        ),
    }


def _of_flock(flock: FlockMembership | None) -> str:
    if flock is None:
        return ""
    pins = (f"[{_lua_string(name)}] = {_lua_string(pin)}" for name, pin in flock.pins.items())
    return _FLOCK.format(
        authorities=_lua_string(flock.authorities) if flock.authorities else "nil",
        pins=f"{{ {', '.join(pins)} }}",
        address_directories=_lua_list(flock.address_directories),
    )


async def _until_it_answers(port: int, namespace: str, host: str) -> None:
    while True:
        if await _answers(port, namespace, host):
            return
        await asyncio.sleep(_PROBE_INTERVAL_SECONDS)


async def _answers(port: int, namespace: str, host: str) -> bool:
    """Tells whether a stream (RFC 6120, 4.2) can be opened to the host."""
    try:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    try:
        writer.write(
            f"<stream:stream xmlns='{namespace}' to='{host}' version='1.0'"
            " xmlns:stream='http://etherx.jabber.org/streams'>".encode()
        )
        greeting = await reader.readuntil(b"<stream:stream")
        greeting += await reader.readuntil(b">")
        return f"from='{host}'".encode() in greeting.replace(b'"', b"'")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return False
    finally:
        writer.close()


def free_ports(count: int) -> list[int]:
    """Returns loopback ports that nothing listens on now, and that no other process finds so.

    On Linux a port stays with this process, for servers that set SO_REUSEADDR, as all do that are
    started again at once. Elsewhere it would be kept from these, too, and is only looked at.

    The kernel gives none of them to outgoing connections: a client that retries while the
    server is down could be given the server's own port, connect to itself, and keep it.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = secrets.choice(_PORTS)
        held = socket.socket()
        try:
            held.bind((LOOPBACK, port))
        except OSError:
            held.close()
            continue
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":
            _held.append(held.detach())
        held.close()
        ports.append(port)
    while len(_held) > _MOST_HELD:
        os.close(_held.popleft())
    return sorted(ports)


def _write_private(file: Path, text: str) -> None:
    """Writes a file that only its owner can read, whole or not at all."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    draft.replace(file)


def _as_file_name(name: str) -> str:
    """Encodes as Prosody's internal storage does: every byte but ASCII letters and digits."""
    return "".join(
        chr(byte) if chr(byte).isascii() and chr(byte).isalnum() else f"%{byte:02x}"
        for byte in name.encode()
    )


def _lua_string(text: str) -> str:
    """Quotes a text for Lua."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _lua_list(texts: tuple[str, ...]) -> str:
    return f"{{ {', '.join(map(_lua_string, texts))} }}"
