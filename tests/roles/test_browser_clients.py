"""Chat clients in browsers reach users' accounts if the operator says so, and only with TLS."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from role_files import ROLES
from templating import render, values_of

from kestrelctl.xmpp.prosody import find_prosody, free_ports

CHECKOUT = ROLES.parent
HOST = b"users.pool.example.org"
ADDRESS = "chat.example.org"


def configuration(**variables: object) -> str:
    """What the role makes of its defaults and these variables."""
    text = (ROLES / "xmpp_server/templates/prosody.cfg.lua.j2").read_text()
    return str(render(text, {**values_of("xmpp_server"), "inventory_hostname": "srv", **variables}))


def test_browsers_do_not_reach_a_server_by_default() -> None:
    text = configuration()
    assert "websocket" not in text
    assert "https_ports = { }" in text


def test_a_port_for_browsers_is_one_with_tls_on_loopback() -> None:
    text = configuration(xmpp_server_websocket_port=5281)
    assert 'modules_enabled = { "roster", "offline", "websocket" }' in text
    assert 'https_ports = { 5281 }\nhttps_interfaces = { "127.0.0.1" }\n' in text
    assert "c2s_require_encryption = true" in text


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A server as the role configures it: its port for browsers, and the plain one of metrics."""
    browsers, metrics, clients, component = free_ports(4)
    openssl = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    words = [*openssl.split(), "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "crt")]
    subprocess.run(words, check=True, capture_output=True)
    text = configuration(
        xmpp_server_websocket_port=browsers,
        xmpp_server_address=ADDRESS,
        xmpp_server_metrics_port=metrics,
        xmpp_server_metrics_interfaces=["127.0.0.1"],
        xmpp_server_interfaces=["127.0.0.1"],
        xmpp_server_client_port=clients,
        xmpp_server_component_port=component,
        __xmpp_server_modules_path=str(CHECKOUT / "kestrelctl/xmpp/prosody_modules"),
        __xmpp_server_certificate_path=str(tmp_path / "crt"),
        __xmpp_server_key_path=str(tmp_path / "key"),
        __xmpp_server_secret_path=str(tmp_path / "*.secret"),
    )
    file = tmp_path / "prosody.cfg.lua"
    own = f'run_as_root = true\ndata_path = "{tmp_path}"\npidfile = "{tmp_path}/pid"\n'
    file.write_text(own + re.sub("(?m)^pidfile = .*$", "", text))
    process = subprocess.Popen(
        [find_prosody(), "--config", file, "-F"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    yield browsers, metrics
    process.terminate()
    print((process.communicate()[0] or b"").decode())


def features(sock: socket.socket) -> str:
    """What a server offers whom it has let in by WebSocket (RFC 6455, RFC 7395)."""
    sock.sendall(
        b"GET /xmpp-websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: xmpp\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
    )
    said = b""
    while b"\r\n\r\n" not in said:
        said += sock.recv(4096)
    opening = b"<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='%s' version='1.0'/>" % HOST
    sock.sendall(b"\x81" + bytes([0x80 | len(opening)]) + bytes(4) + opening)
    while b"features>" not in said and b"<close" not in said and (more := sock.recv(4096)):
        said += more
    return said.decode(errors="replace")


def connected(port: int) -> socket.socket:
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=20)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("named", [ADDRESS, None], ids=["browser", "proxy"])
def test_a_browser_is_asked_for_a_password_only_inside_tls(
    ports: tuple[int, int], named: str | None
) -> None:
    browsers, metrics = ports
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(connected(browsers), server_hostname=named) as sock:
        offered = features(sock)
    assert "101 Switching Protocols" in offered
    assert "SCRAM-SHA-256" in offered
    with connected(metrics) as plain:
        offered = features(plain)
    assert "101 Switching Protocols" in offered
    assert "mechanism" not in offered
