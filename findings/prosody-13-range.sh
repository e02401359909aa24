#!/bin/sh
# Prosody 13.0.1 of Debian 13 (13.0.1-1+deb131u), in a folder made by mmdebstrap. As root.
#
# One would guess: mod_http_file_share answers `Range: bytes=4-6` with these three bytes, or, as a
# server may and as Prosody 0.12.3 does, with 200 and the whole file.
# Seen: it answers 416, as if the range lay outside the file, and so it does for `bytes=-3`. Only a
# range that ends with the file's last byte and does not begin with its first is answered with 206.
# (0.12.3 knows `bytes=4-` alone, and says `bytes 4-10/10` of ten bytes, one too many.)
# So: ask for `bytes=N-`, and read no more than is wanted; do not take 416 for the end of the file.
set -eu
folder=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; wait "$server" || true; fi; rm -rf "$folder"' EXIT
mmdebstrap --quiet --variant=apt --include=prosody=13.0.1-1+deb131u trixie "$folder/debian"
mkdir -p "$folder/debian/pool/data" "$folder/debian/pool/certs"
cat >"$folder/debian/pool/prosody.cfg.lua" <<'LUA'
pidfile = "/pool/prosody.pid"
data_path = "/pool/data"
log = { error = "/pool/log" }
modules_enabled = { "saslauth" }
c2s_ports, c2s_interfaces, c2s_direct_tls_ports = { 15222 }, { "127.0.0.1" }, {}
http_ports, http_interfaces, https_ports = { 15280 }, { "127.0.0.1" }, {}
s2s_ports = {}
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
authentication = "internal_plain"
VirtualHost "localhost"
Component "share.localhost" "http_file_share"
    http_host = "localhost"
LUA
chroot "$folder/debian" chown -R prosody: /pool
chroot "$folder/debian" prosodyctl --config /pool/prosody.cfg.lua register ada localhost secret \
    >"$folder/said" 2>&1
chroot --userspec=prosody: "$folder/debian" prosody --config /pool/prosody.cfg.lua -F \
    >>"$folder/said" 2>&1 &
server=$!
timeout 60 python3 - <<'PYTHON' | tee "$folder/seen"
import base64
import http.client
import re
import socket
import time


def until(end):
    said = b""
    while end not in said:
        more = stream.recv(4096)
        assert more, said
        said += more
    return said.decode()


def begin():
    stream.sendall(
        b"<stream:stream xmlns='jabber:client' to='localhost' version='1.0'"
        b" xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    until(b"</stream:features>")


for _ in range(200):  # the server is starting
    try:
        stream = socket.create_connection(("127.0.0.1", 15222), timeout=10)
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
begin()
password = base64.b64encode(b"\0ada\0secret")
stream.sendall(
    b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>" + password + b"</auth>"
)
until(b"<success")
begin()
stream.sendall(b"<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>")
until(b"</iq>")
stream.sendall(
    b"<iq type='get' id='2' to='share.localhost'><request xmlns='urn:xmpp:http:upload:0'"
    b" filename='ten' size='10' content-type='text/plain'/></iq>"
)
slot = until(b"</iq>")
path = re.search("<put url='http://[^/]+([^']+)'", slot)[1]
authorization = re.search("Bearer [^<]+", slot)[0]
web = http.client.HTTPConnection("localhost", 15280, timeout=10)
web.request("PUT", path, "0123456789", {"Authorization": authorization, "Content-Type": "text/plain"})
answer = web.getresponse()
answer.read()
assert answer.status == 201, answer.status
for asked in ("bytes=4-", "bytes=4-9", "bytes=4-6", "bytes=0-9", "bytes=-3"):
    web.request("GET", path, headers={"Range": asked})
    answer = web.getresponse()
    body = answer.read().decode()
    print(asked, answer.status, body if answer.status == 206 else "-")
PYTHON
diff - "$folder/seen" <<'SEEN'
bytes=4- 206 456789
bytes=4-9 206 456789
bytes=4-6 416 -
bytes=0-9 416 -
bytes=-3 416 -
SEEN
