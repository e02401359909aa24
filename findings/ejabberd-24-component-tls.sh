#!/bin/sh
# ejabberd 24.12 of Debian 13 (24.12-3+deb13u2), in a folder made by mmdebstrap. As root.
#
# One would guess: `tls: true` on the port of components (ejabberd_service) takes its certificate
# from the global `certfiles`, as the port of clients does.
# Seen: every connection there is closed during the handshake, without a line in the log beyond
# that it was accepted. The port has a certificate only with a `certfile` of its own.
# So: name the file in both places.
set -eu
folder=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server"; wait "$server" || true; fi; rm -rf "$folder"' EXIT
mmdebstrap --quiet --variant=apt --include=ejabberd=24.12-3+deb13u2 trixie "$folder/debian"
mkdir "$folder/debian/pool"
cat >"$folder/debian/pool/ejabberd.yml" <<'YAML'
hosts: [localhost]
certfiles: [/pool/pool.pem]
listen:
  - {module: ejabberd_service, ip: 127.0.0.1, port: 15348, tls: true}
  - {module: ejabberd_service, ip: 127.0.0.1, port: 15349, tls: true, certfile: /pool/pool.pem}
  - {module: ejabberd_c2s, ip: 127.0.0.1, port: 15223, tls: true}
YAML
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=pool.localhost -days 2 \
    -addext subjectAltName=DNS:pool.localhost,DNS:localhost \
    -keyout "$folder/key" -out "$folder/crt" 2>"$folder/said"
cat "$folder/crt" "$folder/key" >"$folder/debian/pool/pool.pem"
chroot "$folder/debian" env -i HOME=/pool LANG=C.UTF-8 PATH=/usr/bin:/bin \
    ERL_LIBS=/usr/lib/x86_64-linux-gnu EJABBERD_CONFIG_PATH=/pool/ejabberd.yml \
    EJABBERD_LOG_PATH=/pool/log erl -noinput -mnesia dir '"/pool/data"' -s ejabberd \
    >"$folder/said" 2>&1 &
server=$!
timeout 120 python3 - <<'PYTHON' | tee "$folder/seen"
import socket
import ssl
import time

context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE


def connect(port):
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.1)
    raise AssertionError(port)


for what, port in (
    ("clients", 15223),
    ("components", 15348),
    ("components, with a certfile", 15349),
):
    try:
        with context.wrap_socket(connect(port), server_hostname="pool.localhost") as stream:
            print(f"{what}: has a certificate", bool(stream.getpeercert(binary_form=True)))
    except OSError as error:
        print(f"{what}: {type(error).__name__}")
PYTHON
echo "errors and warnings about it: $(grep -E '\[(error|warning)\]' "$folder/debian/pool/log" |
    grep -ciE 'tls|handshake|service' || true)" | tee -a "$folder/seen"
diff - "$folder/seen" <<'SEEN' || { cat "$folder/said"; exit 1; }
clients: has a certificate True
components: ConnectionResetError
components, with a certfile: has a certificate True
errors and warnings about it: 0
SEEN
