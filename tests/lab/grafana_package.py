#!/usr/bin/env python3
"""Build a stand-in for Grafana's package: grafana_package.py DIRECTORY prints the .deb it made.

It has the name, user, directories, modes and unit of the real one, and a server that takes its
settings as Grafana does, `$__file{}` included, and answers /api/health, and /api/org to admin.
What is not tried here is what only the real server does: showing dashboards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = {
    "DEBIAN/control": """\
Package: grafana
Version: 0.0.1
Architecture: all
Maintainer: Kestrel <root@localhost>
Depends: adduser, python3
Description: stand-in for Grafana
""",
    "DEBIAN/conffiles": """\
/etc/default/grafana-server
/etc/grafana/grafana.ini
""",
    "DEBIAN/postinst": """\
#!/bin/sh
set -e
getent passwd grafana >/dev/null ||
    adduser --system --group --home /usr/share/grafana --no-create-home --quiet grafana
mkdir -p /var/lib/grafana /var/log/grafana
chown -R grafana:grafana /var/lib/grafana /var/log/grafana
chown -Rh root:grafana /etc/grafana/*
chmod 755 /etc/grafana
find /etc/grafana -type f -exec chmod 640 {} ';'
find /etc/grafana -type d -exec chmod 755 {} ';'
systemctl daemon-reload
""",
    "etc/default/grafana-server": "GF_SERVER_HTTP_PORT=1\n",
    "etc/grafana/grafana.ini": "",
    "etc/grafana/provisioning/plugins/sample.yaml": "",
    "usr/lib/systemd/system/grafana-server.service": """\
[Unit]
Description=Stand-in for Grafana

[Service]
Type=simple
User=grafana
Group=grafana
EnvironmentFile=/etc/default/grafana-server
ExecStart=/usr/bin/python3 /usr/share/grafana/server.py
Restart=on-failure

[Install]
WantedBy=multi-user.target
""",
    "usr/share/grafana/server.py": '''\
"""Answer as Grafana does where its role asks."""

import base64
import http.server
import os
import re
import ssl


def setting(name: str, default: str = "") -> str:
    text = os.environ.get(f"GF_{name}", default)
    return re.sub(r"\\$__file{([^}]+)}", lambda found: open(found[1]).read().strip(), text)


login = base64.b64encode(f"admin:{setting('SECURITY_ADMIN_PASSWORD')}".encode()).decode()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/api/health":
            status, body = 200, b'{"database": "ok", "version": "0.0.1"}'
        elif self.path != "/api/org":
            status, body = 404, b"{}"
        elif self.headers["Authorization"] == f"Basic {login}":
            status, body = 200, b'{"id": 1}'
        else:
            status, body = 401, b"{}"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)


address = setting("SERVER_HTTP_ADDR"), int(setting("SERVER_HTTP_PORT", "3000"))
server = http.server.ThreadingHTTPServer(address, Handler)
if setting("SERVER_PROTOCOL") == "https":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(setting("SERVER_CERT_FILE"), setting("SERVER_CERT_KEY"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
''',
}


def build(directory: Path) -> Path:
    """Build the package in a directory and return its path."""
    package = directory / "grafana_0.0.1_all.deb"
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "grafana"
        for name, text in FILES.items():
            file = tree / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        tree.chmod(0o755)
        (tree / "DEBIAN/postinst").chmod(0o755)
        command = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(package)]
        same_each_time = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=same_each_time)
    return package


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
