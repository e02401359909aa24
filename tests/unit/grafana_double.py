"""A Grafana server for tests: its HTTP API in small, on loopback.

The shapes of requests, answers and refusals are those of Grafana's documentation (grafana/grafana,
docs/sources/developers/http_api: dashboard, dashboard_versions, data_source, folder,
folder_dashboard_search, other, snapshot) and of pkg/services/dashboards/errors.go. No Grafana ran
to record them.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
Answer = tuple[int, Any]

TOKEN = "glsa_mSgWxS7cXFtNy0aTzUvB_4ab31cd9"
NOT_FOUND = (404, {"message": "Dashboard not found", "status": "not-found"})


@dataclass
class Stored:
    """A dashboard with its history, newest last: (author, message) of each version."""

    model: Json
    folder: str
    provisioned: bool = False
    history: list[tuple[str, str]] = field(default_factory=list)

    @property
    def version(self) -> int:
        return len(self.history)


class GrafanaDouble:
    """The state of the server.

    Attributes:
        refusals: (method, path) -> what is answered instead.
        results: of every query of data, by the expression.
        new_style: versions come as an object, as since Grafana 11.
        asked: (method, path, body) of every request.
    """

    def __init__(self) -> None:
        self.url = ""
        self.folders: dict[str, str] = {"kst": "Kestrel"}
        self.dashboards: dict[str, Stored] = {}
        self.snapshots: list[Json] = []
        self.refusals: dict[tuple[str, str], Answer | str] = {}
        self.results: dict[str, list[Json]] = {}
        self.new_style = False
        self.asked: list[tuple[str, str, Json | None]] = []
        self.before_save: Any = None

    def edit(self, uid: str, author: str = "ada", **fields: Any) -> None:
        """Somebody saves a dashboard in the browser."""
        stored = self.dashboards[uid]
        stored.model = {**stored.model, **fields}
        stored.history.append((author, "made it nicer"))

    def writes(self) -> list[str]:
        """The paths of the requests that change something."""
        return [path for method, path, _ in self.asked if method == "POST"]

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Answer:
        match method, path.removeprefix("/api").strip("/").split("/"):
            case "GET", ["search"]:
                return 200, list(self._hits(query))
            case "POST", ["folders"]:
                uid = body.get("uid") or f"f{len(self.folders)}"
                if uid in self.folders:
                    return 409, {"message": "a folder with the same uid already exists"}
                self.folders[uid] = body["title"]
                return 200, {"id": 1, "uid": uid, "title": body["title"], "version": 1}
            case "GET", ["dashboards", "uid", uid]:
                return self._dashboard(uid)
            case "GET", ["dashboards", "uid", uid, "versions"]:
                return self._versions(uid)
            case "POST", ["dashboards", "db"]:
                return self._save(body)
            case "GET", ["frontend", "settings"]:
                sources = {
                    "-- Grafana --": {"uid": "grafana", "type": "datasource"},
                    "Other": {"uid": "p2", "type": "prometheus", "name": "Other"},
                    "Pool": {"uid": "p1", "type": "prometheus", "name": "Pool", "isDefault": True},
                }
                return 200, {"buildInfo": {"version": "12.4.0"}, "datasources": sources}
            case "POST", ["ds", "query"]:
                return 200, {"results": {q["refId"]: self._result(q) for q in body["queries"]}}
            case "POST", ["snapshots"]:
                self.snapshots.append(body)
                key = f"key{len(self.snapshots)}"
                return 200, {
                    "deleteKey": f"d{key}", "deleteUrl": f"{self.url}/api/snapshots-delete/d{key}",
                    "key": key, "url": f"{self.url}/dashboard/snapshot/{key}", "id": 1,
                }  # fmt: skip
        return 404, {"message": "Not found"}

    def _hits(self, query: dict[str, list[str]]) -> Iterator[Json]:
        if query["type"] == ["dash-folder"]:
            for uid, title in self.folders.items():
                yield {"uid": uid, "title": title, "type": "dash-folder", "tags": []}
        else:
            for uid, stored in self.dashboards.items():
                if [stored.folder] == query["folderUIDs"]:
                    yield {"uid": uid, "title": stored.model["title"], "type": "dash-db"}

    def _dashboard(self, uid: str) -> Answer:
        stored = self.dashboards.get(uid)
        if stored is None:
            return NOT_FOUND
        meta = {"folderUid": stored.folder, "provisioned": stored.provisioned, "slug": "x"}
        return 200, {
            "dashboard": {**stored.model, "id": 7, "version": stored.version},
            "meta": meta,
        }

    def _versions(self, uid: str) -> Answer:
        if uid not in self.dashboards:
            return NOT_FOUND
        versions = [
            {"id": n, "uid": uid, "version": n, "createdBy": author, "message": message}
            for n, (author, message) in enumerate(self.dashboards[uid].history, 1)
        ][::-1]
        return 200, {"continueToken": "", "versions": versions} if self.new_style else versions

    def _save(self, body: Json) -> Answer:
        if self.before_save is not None:
            self.before_save()
        model, uid = body["dashboard"], body["dashboard"]["uid"]
        old = self.dashboards.get(uid)
        if old is not None and not body["overwrite"] and model.get("version") != old.version:
            return 412, {
                "message": "The dashboard has been changed by someone else",
                "status": "version-mismatch",
            }
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        kept = {key: value for key, value in model.items() if key not in ("id", "version")}
        history = [*(old.history if old else []), ("sa-kestrel", body["message"])]
        self.dashboards[uid] = Stored(dict(sorted(kept.items())), body["folderUid"], False, history)
        return 200, {
            "id": 7, "uid": uid, "url": f"/d/{uid}/x", "status": "success",
            "version": len(history), "slug": "x",
        }  # fmt: skip

    def _result(self, query: Json) -> Json:
        return {"status": 200, "frames": self.results.get(query["expr"], [])}


@contextmanager
def running(
    double: GrafanaDouble, path: str = "", context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serves the double; its address, under a path or with TLS if wanted."""

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            place = parts.path.removeprefix(path)
            double.asked.append((self.command, place, body))
            refusal = double.refusals.get((self.command, place))
            if place == parts.path and path:
                self._send(404, "<html>no such page</html>")
            elif refusal is not None:
                self._send(*(refusal if isinstance(refusal, tuple) else (200, refusal)))
            elif place == "/api/health":
                self._send(200, {"commit": "0", "database": "ok", "version": "12.4.0"})
            elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._send(401, {"message": "Invalid API key"})
            else:
                self._send(*double.answer(self.command, place, parse_qs(parts.query), body))

        do_GET = do_POST = _handle

        def _send(self, status: int, answer: Any) -> None:
            text = isinstance(answer, str)
            data = answer.encode() if text else json.dumps(answer).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", answer)
            self.send_header("Content-Type", "text/html" if text else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    scheme = "https" if context else "http"
    double.url = f"{scheme}://127.0.0.1:{server.server_port}{path}"
    try:
        yield double.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
