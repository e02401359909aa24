"""The file share as the role sets it up: with TLS, for the pool's accounts, or not at all."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

from role_files import ROLES
from templating import render, values_of

from kestrelctl.files.share import FileShare
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer, find_prosody, free_ports
from kestrelctl.xmpp.user import connect_user

DOMAIN = "pool.example.org"


def configuration(**variables: object) -> str:
    """What the role makes of its defaults and these variables."""
    text = (ROLES / "xmpp_server/templates/prosody.cfg.lua.j2").read_text()
    return str(render(text, {**values_of("xmpp_server"), "inventory_hostname": "srv", **variables}))


def test_files_have_a_port_with_tls_by_default() -> None:
    text = configuration(xmpp_server_address="192.0.2.1")
    assert "kestrel_share_ports = { 5443 }" in text
    assert 'http_external_url = "https://192.0.2.1:5443/"' in text
    # The manager asks for places of files that come from other pools.
    allowed = f'"workers.{DOMAIN}", "users.{DOMAIN}", "pool@{DOMAIN}"'
    assert f"http_file_share_access = {{ {allowed} }}" in text
    assert "http_file_share_expires_after = 604800" in text
    share = int(values_of("xmpp_server")["xmpp_server_share_max_bytes"])
    assert f"kestrel_slots_bytes_of_all = {share}" in text
    assert "kestrel_slots_account_percent = 25" in text
    assert f"kestrel_slots_account_bytes_per_day = {share // 4}" in text
    in_brackets = configuration(xmpp_server_address="2001:db8::1")
    assert 'http_external_url = "https://[2001:db8::1]:5443/"' in in_brackets


def test_a_server_may_have_no_file_share() -> None:
    text = configuration(xmpp_server_share_port=0)
    assert "share" not in text


def make_certificate(directory: Path) -> None:
    names = f"subjectAltName=DNS:localhost,DNS:{DOMAIN},DNS:users.{DOMAIN}"
    openssl = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1"
    words = [*openssl.split(), "-subj", "/CN=localhost", "-addext", names]
    made = ["-keyout", str(directory / "key"), "-out", str(directory / "crt")]
    subprocess.run([*words, *made], check=True, capture_output=True)


async def test_a_pools_user_stores_files_there(tmp_path: Path) -> None:
    clients, component, metrics, files = free_ports(4)
    make_certificate(tmp_path)
    text = configuration(
        xmpp_server_address="localhost",
        xmpp_server_share_port=files,
        xmpp_server_metrics_port=metrics,
        xmpp_server_metrics_interfaces=[LOOPBACK],
        xmpp_server_interfaces=[LOOPBACK],
        xmpp_server_client_port=clients,
        xmpp_server_component_port=component,
        xmpp_server_component_tls=False,
        __xmpp_server_modules_path=str(ROLES.parent / "kestrelctl/xmpp/prosody_modules"),
        __xmpp_server_certificate_path=str(tmp_path / "crt"),
        __xmpp_server_key_path=str(tmp_path / "key"),
        __xmpp_server_secret_path=str(tmp_path / "*.secret"),
    )
    file = tmp_path / "prosody.cfg.lua"
    own = f'run_as_root = true\ndata_path = "{tmp_path}/data"\npidfile = "{tmp_path}/pid"\n'
    file.write_text(own + re.sub("(?m)^(pidfile|log) = .*$", "", text))
    server = PrivateServer(tmp_path, DOMAIN, clients, component, "")
    source = tmp_path / "source"
    source.write_bytes(b"what was stored" * 100_000)
    process = await asyncio.create_subprocess_exec(find_prosody(), "--config", file, "-F")
    try:
        jid = f"ada@{server.users_domain}"
        password = server.add_account(jid)
        async with connect_user(
            jid, password, DOMAIN, LOOPBACK, clients, tls=True, ca_file=tmp_path / "crt",
            timeout_seconds=20,
        ) as user:  # fmt: skip
            share = FileShare(user.request_slot, ca_file=tmp_path / "crt")
            stored = await share.put(source)
        assert stored.pieces[0].url.startswith(f"https://localhost:{files}/")
        await share.get(stored, tmp_path / "copy")
    finally:
        process.terminate()
        await process.wait()
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
