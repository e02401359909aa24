#!/bin/sh
# ejabberd 24.12 of Debian 13 (24.12-3+deb13u2), in a folder made by mmdebstrap. As root.
#
# One would guess: with `send_pings` and `timeout_action: kill`, mod_ping ends any session whose
# client has vanished. For a ping an error is as good an answer as a result: XEP-0199 allows
# `service-unavailable` to who does not know pings, and it shows as well that somebody is there.
# Seen: a session that has answered with that error once is never pinged again, and is not ended
# when its client says nothing any more. 23.01 of Debian 12 does the same.
# So: a client that wants dead sessions of its own to go answers pings with a result.
set -eu
folder=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; wait "$server" || true; fi; rm -rf "$folder"' EXIT
mmdebstrap --quiet --variant=apt --include=ejabberd=24.12-3+deb13u2 trixie "$folder/debian"
mkdir "$folder/debian/pool"
cat >"$folder/debian/pool/ejabberd.yml" <<'YAML'
hosts: [localhost]
listen:
  - {module: ejabberd_c2s, ip: 127.0.0.1, port: 15222}
  - {module: ejabberd_http, ip: 127.0.0.1, port: 15280, request_handlers: {/api: mod_http_api}}
api_permissions: {all: {who: {ip: 127.0.0.1/8}, what: "*"}}
modules:
  mod_admin_extra: {}
  mod_ping: {send_pings: true, ping_interval: 1, ping_ack_timeout: 1, timeout_action: kill}
YAML
chroot "$folder/debian" env -i HOME=/pool LANG=C.UTF-8 PATH=/usr/bin:/bin \
    ERL_LIBS=/usr/lib/x86_64-linux-gnu EJABBERD_CONFIG_PATH=/pool/ejabberd.yml \
    EJABBERD_LOG_PATH=/pool/log erl -noinput -mnesia dir '"/pool/data"' -s ejabberd \
    >"$folder/said" 2>&1 &
server=$!
timeout 120 python3 - <<'PYTHON' | tee "$folder/seen"
import base64
import json
import re
import socket
import time
import urllib.request

ERROR = "<error type='cancel'><service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"


def until(end):
    said = b""
    while end not in said:
        more = stream.recv(4096)
        if not more:
            return None
        said += more
    return said.decode()


def begin():
    stream.sendall(
        b"<stream:stream xmlns='jabber:client' to='localhost' version='1.0'"
        b" xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    until(b"</stream:features>")


for _ in range(600):
    try:
        socket.create_connection(("127.0.0.1", 15222)).close()
        socket.create_connection(("127.0.0.1", 15280)).close()
        break
    except OSError:
        time.sleep(0.1)
account = {"user": "ada", "host": "localhost", "password": "secret"}
urllib.request.urlopen("http://127.0.0.1:15280/api/register", json.dumps(account).encode())
auth = base64.b64encode(b"\0ada\0secret").decode()
for kind, payload in (("result", ""), ("error", ERROR)):
    stream = socket.create_connection(("127.0.0.1", 15222))
    begin()
    stream.sendall(
        f"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{auth}</auth>".encode()
    )
    until(b"<success")
    begin()
    stream.sendall(b"<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>")
    until(b"</iq>")
    pings = 0
    stream.settimeout(10)
    try:
        while pings < 5:
            asked = until(b"</iq>")
            pings += 1
            ping = re.search("id='([^']+)'", asked)[1]
            stream.sendall(f"<iq type='{kind}' id='{ping}' to='localhost'>{payload}</iq>".encode())
    except TimeoutError:
        pass
    try:
        until(b"</stream:stream>")
        end = "ended"
    except TimeoutError:
        end = "open"
    print(f"answered with {kind}: {pings} pings, and after ten seconds without an answer {end}")
PYTHON
diff - "$folder/seen" <<'SEEN' || { cat "$folder/said"; exit 1; }
answered with result: 5 pings, and after ten seconds without an answer ended
answered with error: 1 pings, and after ten seconds without an answer open
SEEN
