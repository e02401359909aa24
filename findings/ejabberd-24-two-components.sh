#!/bin/sh
# ejabberd 24.12 of Debian 13 (24.12-3+deb13u2), in a folder made by mmdebstrap. As root.
#
# One would guess: a component (XEP-0114) whose address is in use already is refused with
# `conflict`, as by Prosody, or the newer connection takes the place of the older one.
# Seen: both are let in, neither is told, and each stanza for the address goes to one of them, by
# chance.
# So: a program that may start twice has to make sure of itself that one of it is connected; what a
# hanging one still holds is lost until its connection is found dead.
set -eu
folder=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; wait "$server" || true; fi; rm -rf "$folder"' EXIT
mmdebstrap --quiet --variant=apt --include=ejabberd=24.12-3+deb13u2 trixie "$folder/debian"
mkdir "$folder/debian/pool"
cat >"$folder/debian/pool/ejabberd.yml" <<'YAML'
hosts: [localhost]
listen:
  - module: ejabberd_service
    ip: 127.0.0.1
    port: 15347
    hosts: {pool.localhost: {password: secret}}
YAML
chroot "$folder/debian" env -i HOME=/pool LANG=C.UTF-8 PATH=/usr/bin:/bin \
    ERL_LIBS=/usr/lib/x86_64-linux-gnu EJABBERD_CONFIG_PATH=/pool/ejabberd.yml \
    EJABBERD_LOG_PATH=/pool/log erl -noinput -mnesia dir '"/pool/data"' -s ejabberd \
    >"$folder/said" 2>&1 &
server=$!
timeout 120 python3 - <<'PYTHON' | tee "$folder/seen"
import hashlib
import re
import socket
import time


def until(stream, end):
    said = b""
    while not re.search(end, said):
        more = stream.recv(4096)
        if not more:
            return None
        said += more
    return said.decode()


def component():
    for _ in range(600):
        try:
            stream = socket.create_connection(("127.0.0.1", 15347))
            break
        except OSError:
            time.sleep(0.1)
    stream.sendall(
        b"<stream:stream xmlns='jabber:component:accept' to='pool.localhost'"
        b" xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    found = re.search(r"\bid='([^']+)'", until(stream, rb"<stream:stream [^>]*>"))
    digest = hashlib.sha1(f"{found[1]}secret".encode()).hexdigest()
    stream.sendall(f"<handshake>{digest}</handshake>".encode())
    until(stream, b"<handshake/>")
    return stream


first = component()
second = component()
print("the second is let in")
for number in range(40):
    first.sendall(f"<message from='pool.localhost' to='pool.localhost' id='m{number}'/>".encode())
got = []
for stream in (first, second):
    stream.settimeout(3)
    said = b""
    try:
        while True:
            more = stream.recv(4096)
            if not more:
                break
            said += more
    except TimeoutError:
        pass
    got.append(len(re.findall(b"<message", said)))
    print("error" if b"error" in said else "no error", "some" if 0 < got[-1] < 40 else got[-1])
print("of", sum(got))
PYTHON
diff - "$folder/seen" <<'SEEN' || { cat "$folder/said"; exit 1; }
the second is let in
no error some
no error some
of 40
SEEN
