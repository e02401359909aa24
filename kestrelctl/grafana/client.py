"""A Grafana server over its HTTP API, through the library grafana-client.

https://grafana.com/docs/grafana/latest/developer-resources/api-reference/http-api/
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kestrelctl.errors import NotFound, UsageError
from kestrelctl.grafana.board import Json
from kestrelctl.grafana.grafana_access import GrafanaAccess
from kestrelctl.grafana.refusals import no_grafana, translated
from kestrelctl.missing_package import missing_package

#: The most that one page of a search may hold.
_PAGE = 5000


@dataclass(frozen=True, slots=True)
class Saved:
    """A dashboard as the server has it.

    Attributes:
        version: counts how often it was saved.
        folder: uid of the folder it is in; empty at the top.
        provisioned: the server reads it from a file, and takes it from nowhere else.
    """

    model: Json
    version: int
    folder: str
    provisioned: bool


@dataclass(frozen=True, slots=True)
class Edit:
    """The saving of one version of a dashboard: who did it, and what they said of it."""

    version: int
    author: str
    message: str


def connect(access: GrafanaAccess) -> Grafana:
    """Finds the server, and makes sure that it is one of Grafana's.

    Raises:
        MissingTool: grafana-client is not installed.
        Unreachable: nothing answers there, or not Grafana.
    """
    try:
        from grafana_client.api import GrafanaApi
    except ImportError as error:
        raise missing_package(
            "grafana-client is not installed, so no Grafana server can be spoken to",
            "grafana-client",
            cause=str(error),
        ) from error
    api = GrafanaApi(
        auth=access.token,
        protocol=access.scheme,
        host=f"[{access.host}]" if ":" in access.host else access.host,
        port=access.port,
        url_path_prefix=f"{access.path}/" if access.path else "",
        timeout=access.timeout_seconds,
    )
    # The token is for this server alone, and what goes over http must not leave this machine.
    api.client.s.max_redirects = 0
    api.client.s.trust_env = not access.is_open
    grafana = Grafana(api, access)
    grafana.check_health()
    return grafana


class Grafana:
    """The requests to a server for dashboards. Each method may raise the errors of `refusals`."""

    def __init__(self, api: Any, access: GrafanaAccess) -> None:
        self._api = api
        self._access = access

    def check_health(self) -> None:
        """Makes sure that Grafana answers.

        Raises:
            Unreachable: something else does, or nothing.
        """
        with self._asking("look at"):
            answer = self._api.client.GET("/health")
            if not isinstance(answer, dict) or "database" not in answer:
                raise no_grafana(self._access.url, "its /api/health is none of Grafana's")

    def find_folder(self, wanted: str) -> str | None:
        """The uid of the folder with that uid or title; None if the token sees none.

        Raises:
            UsageError: several have that title.
        """
        with self._asking("look for folders in"):
            hits = self._api.search.search_dashboards(type_="dash-folder", limit=_PAGE)
            by_uid = [hit["uid"] for hit in hits if hit["uid"] == wanted]
            found = by_uid or [hit["uid"] for hit in hits if hit["title"] == wanted]
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} folders are called {wanted!r}",
                cause=f"uids: {', '.join(found)}",
                hint=f"--folder {found[0]}",
            )
        return found[0] if found else None

    def create_folder(self, title: str) -> str:
        """Makes a folder; its uid follows from its title, so that there cannot be two."""
        slug = "".join(char if char.isascii() and char.isalnum() else "-" for char in title.lower())
        with self._asking(f"create the folder {title!r} in"):
            answer = self._api.folder.create_folder(title, uid=slug.strip("-")[:40] or None)
            uid: str = answer["uid"]
            return uid

    def list_folder(self, folder: str) -> list[str]:
        """The uids of the dashboards in a folder."""
        with self._asking("list dashboards of"):
            hits = self._api.search.search_dashboards(
                type_="dash-db", folder_uids=folder, limit=_PAGE
            )
            return sorted(hit["uid"] for hit in hits)

    def read(self, uid: str) -> Saved:
        """A dashboard.

        Raises:
            NotFound: the server has none with that uid.
        """
        with self._asking(f"read the dashboard {uid} of"):
            answer = self._api.dashboard.get_dashboard(uid)
            meta, model = answer["meta"], answer["dashboard"]
            return Saved(
                model=model,
                version=int(model.get("version") or 0),
                folder=meta.get("folderUid") or "",
                provisioned=bool(meta.get("provisioned")),
            )

    def last_edit(self, uid: str) -> Edit | None:
        """The newest saving of a dashboard; None if the server keeps no history of it."""
        try:
            with self._asking(f"read the history of the dashboard {uid} of"):
                # The library's own method puts `limit` where no server looks for it.
                answer = self._api.client.GET(f"/dashboards/uid/{uid}/versions?limit=1")
                # A list until Grafana 11, since then an object with a token for the next page.
                edits = answer["versions"] if isinstance(answer, dict) else answer
                newest = max(edits, key=lambda edit: int(edit["version"]), default=None)
                if newest is None:
                    return None
                author, message = newest.get("createdBy"), newest.get("message")
                return Edit(int(newest["version"]), str(author or ""), str(message or ""))
        except NotFound:
            return None

    def save(
        self, model: Json, *, folder: str, replaces: int | None, message: str, overwrite: bool
    ) -> str:
        """Saves a dashboard; returns its address.

        Args:
            replaces: the version that it comes after; None if there is none.
            overwrite: even if another version was saved since.
        """
        body = {**model, "id": None}
        if replaces is not None:
            body["version"] = replaces
        with self._asking(f"save the dashboard {model['uid']} in"):
            answer = self._api.dashboard.update_dashboard(
                {"dashboard": body, "folderUid": folder, "message": message, "overwrite": overwrite}
            )
            return f"{self._access.url}/d/{answer['uid']}"

    def prometheus(self) -> str:
        """The uid of the Prometheus data source that a dashboard takes by itself.

        Raises:
            NotFound: there is none.
        """
        with self._asking("look for data sources of"):
            settings = self._api.client.GET("/frontend/settings")
            found = [each for each in settings["datasources"].values() if _is_prometheus(each)]
            # The frontend's order: the default first, then by name.
            found.sort(key=lambda each: (not each.get("isDefault"), each.get("name", "")))
        if not found:
            raise NotFound(
                f"the Grafana at {self._access.url} has no Prometheus data source",
                hint="--datasource UID, if there is one that the token cannot see",
            )
        uid: str = found[0]["uid"]
        return uid

    def query(self, queries: list[Json], from_ms: int, to_ms: int) -> Json:
        """Frames of data for each query, by its refId."""
        with self._asking("query the data source of"):
            body = {"queries": queries, "from": str(from_ms), "to": str(to_ms)}
            results: Json = self._api.client.POST("/ds/query", json=body)["results"]
            return results

    def snapshot(self, model: Json, name: str, expires_seconds: int) -> Json:
        """Stores a dashboard with its data; the answer holds `url` and `deleteUrl`."""
        with self._asking("create snapshots in"):
            answer: Json = self._api.snapshots.create_new_snapshot(
                dashboard=model, name=name, expires=expires_seconds
            )
            return {"url": answer["url"], "delete_url": answer["deleteUrl"]}

    @contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        """Turns what goes wrong into an error that says what was being done.

        Args:
            doing: the action, e.g. `list dashboards of`, before the name of the server.
        """
        from grafana_client.client import GrafanaException
        from niquests.exceptions import RequestException

        try:
            yield
        except (GrafanaException, RequestException) as error:
            raise translated(error, doing, self._access.url) from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            why = f"it answered with something else than Grafana's API: {error!r}"
            raise no_grafana(self._access.url, why) from error


def _is_prometheus(source: Json) -> bool:
    return source.get("type") == "prometheus" and bool(source.get("uid"))
