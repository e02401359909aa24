#!/bin/sh
# ejabberd 24.12 of Debian 13 (24.12-3+deb13u2), in a folder made by mmdebstrap. As root.
#
# One would guess: the ad-hoc command user-stats (XEP-0133, 4.8) fails for an account that does not
# exist, so an administrator's program can ask with it whether a name is taken. Prosody's reports
# an error then.
# Seen: mod_configure completes it, with the same fields for an account that is there and for one
# that never was: an empty roster, no addresses, no resources.
# So: whether a name is free is learnt by add-user, which answers `conflict`, or from
# get-registered-users-list.
set -eu
folder=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; wait "$server" || true; fi; rm -rf "$folder"' EXIT
mmdebstrap --quiet --variant=apt --include=ejabberd=24.12-3+deb13u2 trixie "$folder/debian"
mkdir "$folder/debian/pool"
cat >"$folder/debian/pool/ejabberd.yml" <<'YAML'
hosts: [localhost]
acl: {manager: {user: [pool@pool.localhost]}}
access_rules: {configure: {allow: manager}}
listen:
  - module: ejabberd_service
    ip: 127.0.0.1
    port: 15347
    hosts: {pool.localhost: {password: secret}}
modules:
  mod_adhoc: {}
  mod_configure: {}
  mod_last: {}
  mod_roster: {}
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


ADMIN = "http://jabber.org/protocol/admin"


def does(command, **values):
    fields = "".join(
        f"<field var='{name.replace('_', '-')}'><value>{value}</value></field>"
        for name, value in {"FORM_TYPE": ADMIN, **values}.items()
    )
    stream.sendall(
        f"<iq type='set' id='1' from='pool@pool.localhost' to='localhost'>"
        f"<command xmlns='http://jabber.org/protocol/commands' node='{ADMIN}#{command}'"
        f" action='complete'><x xmlns='jabber:x:data' type='submit'>{fields}</x></command>"
        f"</iq>".encode()
    )
    said = until(stream, b"</iq>")
    condition = "".join(re.findall(r"<(conflict|item-not-found|forbidden)\b", said))
    values = dict(re.findall(r"var='(\w+)'[^>]*><value>([^<]*)", said))
    values.pop("FORM_TYPE", None)
    print(command, re.search(r"\btype='(result|error)'", said)[1], condition, values)


stream = component()
ada = {"accountjid": "ada@localhost", "password": "secret", "password_verify": "secret"}
does("add-user", **ada)
does("add-user", **ada)
does("user-stats", accountjid="ada@localhost")
does("user-stats", accountjid="nobody@localhost")
PYTHON
diff - "$folder/seen" <<'SEEN' || { cat "$folder/said"; exit 1; }
add-user result  {}
add-user error conflict {'accountjid': 'ada@localhost', 'password': 'secret'}
user-stats result  {'accountjid': 'ada@localhost', 'rostersize': '0'}
user-stats result  {'accountjid': 'nobody@localhost', 'rostersize': '0'}
SEEN
